"""What one request to Conductor costs a process: with our own client, or the official one.

    python conductor_client_driver.py own|official API TASK_ID COUNT

Prints JSON: seconds of importing, bytes resident more than before it, and the milliseconds, of
processor and by the clock, of reading a task.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path


def main() -> None:
    which, address, task_id, count = sys.argv[1:]
    before, began = resident(), time.perf_counter()
    read = {"own": own, "official": official}[which](address, task_id)
    imported = time.perf_counter() - began
    assert read() == task_id
    held = resident() - before  # with what the first request makes it import and open
    processor, clock = time.process_time(), time.perf_counter()
    for _ in range(int(count)):
        read()
    found = {
        "import_seconds": imported,
        "resident_bytes": held,
        "processor_ms": 1000 * (time.process_time() - processor) / int(count),
        "clock_ms": 1000 * (time.perf_counter() - clock) / int(count),
    }
    print(json.dumps(found))


def own(address: str, task_id: str) -> Callable[[], object]:
    from perago.adapters.conductor.client import ConductorClient, ConductorConfig

    api = ConductorClient(ConductorConfig(address))
    return lambda: api.read(f"/tasks/{task_id}", doing="reading a task")["taskId"]


def official(address: str, task_id: str) -> Callable[[], object]:
    from conductor.client.configuration.configuration import Configuration
    from conductor.client.orkes.orkes_task_client import OrkesTaskClient

    client = OrkesTaskClient(Configuration(server_api_url=address))
    return lambda: client.get_task(task_id).task_id


def resident() -> int:
    words = Path("/proc/self/status").read_text().split()
    return 1024 * int(words[words.index("VmRSS:") + 1])


if __name__ == "__main__":
    main()
