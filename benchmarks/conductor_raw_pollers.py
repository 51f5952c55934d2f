"""Raw HTTP pollers: each takes a task and completes it, as plainly as that can be done.

    python conductor_raw_pollers.py API TASK_NAME COUNT

They check nothing, read nothing back and know no task code: what the server can do, and no more.
"""

from __future__ import annotations

import json
import os
import sys
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import urlsplit


def main() -> None:
    address, task_name, count = sys.argv[1:]
    for _ in range(int(count) - 1):
        if os.fork() == 0:
            break
    serve(address, task_name)


def serve(address: str, task_name: str) -> None:
    place = urlsplit(address)
    connection = HTTPConnection(str(place.hostname), place.port, timeout=60)
    poll = f"{place.path}/tasks/poll/batch/{task_name}?count=1&timeout=100&workerid={os.getpid()}"
    while True:
        try:
            for task in json.loads(ask(connection, "GET", poll)):
                ask(connection, "POST", f"{place.path}/tasks", completion(task))
        except (HTTPException, ConnectionError):
            connection.close()  # the server doesn't keep an idle one for ever


def completion(task: dict[str, Any]) -> dict[str, object]:
    return {
        "workflowInstanceId": task["workflowInstanceId"],
        "taskId": task["taskId"],
        "workerId": str(os.getpid()),
        "status": "COMPLETED",
        "outputData": {"result": {}},
    }


def ask(connection: HTTPConnection, method: str, path: str, body: object = None) -> bytes:
    sent = None if body is None else json.dumps(body)
    connection.request(method, path, sent, {"Content-Type": "application/json"})
    return connection.getresponse().read()


if __name__ == "__main__":
    main()
