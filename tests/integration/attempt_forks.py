"""Runs attempts, each in a process forked from this one, which has imported everything already.

lakeFS's client takes over a second to import: too long for a process that is to die at once. Each
line on stdin is an environment, as JSON; the answer to it, on stdout, is how its process ended.
"""

import json
import os
import sys

import lakefs_sdk.client
import obstore.store

from perago.adapters.lakefs import cache, store
from perago.testing import one_attempt

PREPARED = (lakefs_sdk.client, obstore.store, store, cache)


def fork_attempt(environment):
    """How a process ends that runs an attempt in this environment: negative if it was killed."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.environ.update(environment)
    one_attempt.main()
    raise AssertionError("main ends the process")


for line in sys.stdin:
    print(fork_attempt(json.loads(line)), flush=True)  # noqa: T201 - that is its protocol
