"""Metrics and traces of a worker, made in its supervisor from what the executors say."""
