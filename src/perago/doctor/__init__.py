"""The checks of ``perago doctor``: a module for each system. It may know adapters.

A check returns ``Finding`` values; the command line shows them.
"""
