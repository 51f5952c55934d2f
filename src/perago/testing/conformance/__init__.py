"""Behaviour suites for the ports: to test an adapter, subclass its port's suite."""
