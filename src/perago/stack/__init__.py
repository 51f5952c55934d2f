"""Real servers on loopback for development and tests: fetched, started, checked and stopped.

Knows processes, ports and files; never what the servers are used for.
"""
