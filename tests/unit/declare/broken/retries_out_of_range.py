"""Mistake: more retries than allowed."""

from perago import RetryPolicy, TaskControls

CONTROLS = TaskControls(retry=RetryPolicy(count=11))
