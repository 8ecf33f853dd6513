"""Front door and wiring: the only room that sees several I/O rooms."""
