"""Files, SQLite and parallel transfers on this machine, for any adapter that needs them."""
