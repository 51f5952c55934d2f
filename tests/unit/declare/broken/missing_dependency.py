"""Mistake: an import that isn't installed."""

import a_package_nobody_has

SONGS = a_package_nobody_has.songs()
