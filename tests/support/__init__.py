"""Harnesses and rigs that tests of several folders share. Not part of the package."""
