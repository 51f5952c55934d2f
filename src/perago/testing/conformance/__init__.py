"""Behaviour suites for the ports: whoever writes an adapter subclasses one and runs it."""
