"""Implementations of the ports. Adapters know nothing of the flow, nor of each other."""
