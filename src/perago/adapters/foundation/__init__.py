"""What adapters stand on: files, SQLite and parallel transfers on this machine."""
