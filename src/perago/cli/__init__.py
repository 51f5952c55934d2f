"""What people type. One module per command, imported when that command is called and not before."""
