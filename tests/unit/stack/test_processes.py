"""A process is never mistaken for a later one with the same number."""

import os
import subprocess
import sys
import time
from dataclasses import replace

from perago.stack.processes import process_of, start_detached


def sleeper():
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])


def test_a_recycled_pid_is_somebody_else_and_is_never_stopped():
    with sleeper() as stranger:
        ours = replace(process_of(stranger.pid), started="another time")
        assert not ours.is_alive
        ours.stop(grace_seconds=5)
        ours.kill()
        assert stranger.poll() is None
        stranger.kill()


def test_a_process_that_nobody_has_waited_for_is_dead():
    with sleeper() as child:
        process = process_of(child.pid)
        assert process.is_alive
        child.kill()
        assert process.wait(10)
        assert process_of(child.pid) is None


def test_one_that_does_not_listen_is_killed_after_the_grace(tmp_path):
    stubborn = (
        "import signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('deaf', flush=True)\n"
        "time.sleep(60)"
    )
    log = tmp_path / "log"
    process = start_detached(
        [sys.executable, "-c", stubborn], directory=tmp_path, environment={}, log=log
    )
    deadline = time.monotonic() + 20
    while "deaf" not in log.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert process.stop(grace_seconds=0.2) is False
    assert not process.is_alive


def test_a_detached_process_has_a_session_of_its_own_and_a_private_log(tmp_path):
    script = "import os; print(os.getsid(0) != %d, os.getcwd())"
    log = tmp_path / "log"
    process = start_detached(
        [sys.executable, "-c", script % os.getsid(0)], directory=tmp_path, environment={}, log=log
    )
    assert process is None or process.wait(20)
    assert log.read_text() == f"True {tmp_path}\n"
    assert log.stat().st_mode & 0o777 == 0o600


def test_sigterm_stops_a_process_whose_starter_ignores_it(tmp_path):
    starter = (
        "import pathlib, signal, sys\n"
        "from perago.stack.processes import start_detached\n"
        "for number in (signal.SIGINT, signal.SIGTERM):\n"
        "    signal.signal(number, signal.SIG_IGN)\n"
        "here = pathlib.Path()\n"
        "print(start_detached(['/bin/sleep', '60'], directory=here, environment={},"
        " log=here / 'log').pid)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", starter], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    process = process_of(int(ran.stdout))
    assert process.stop(grace_seconds=10), "it had to be killed"
