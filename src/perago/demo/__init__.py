"""The songs pipeline that ``perago demo`` runs: ordinary task modules, as a user would write them.

Uses only Perago's public names.
"""
