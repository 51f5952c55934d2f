"""Frozen values and the pure rules about them: no I/O, no clock, no knowledge of any adapter."""
