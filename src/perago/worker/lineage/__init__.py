"""OpenLineage: what each attempt read, wrote and found, told to whoever is set up to hear it."""
