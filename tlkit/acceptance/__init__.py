"""One run of everything on one device: what works there, how exactly, and the record of it."""
