"""More than one process, and more than one machine."""
