"""Processes: a supervisor that polls and keeps leases alive, and executors that run attempts.

Gets its adapters from :mod:`perago.wiring` alone.
"""
