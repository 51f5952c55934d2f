"""What every test shares: the hypothesis profiles."""

import os

from hypothesis import settings

# CI repeats the same examples on every run and ignores how slow its machine is, so that a red build
# always means the change; developers explore new examples each time.
settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("dev", print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")
