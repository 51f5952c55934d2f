"""Real servers on loopback, for development and tests: got, started, watched and stopped.

Knows processes, ports and files; never what the servers are used for.
"""
