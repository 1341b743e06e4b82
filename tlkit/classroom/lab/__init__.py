"""Experiments of the reader's own: what is asked, the runs that are logged, and whether the method holds."""
