"""What adapters stand on: files, SQLite and parallel transfers on this machine."""

from __future__ import annotations
