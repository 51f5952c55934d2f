"""What a person asks for around runs: start one, import, export, clean up. No processes here."""
