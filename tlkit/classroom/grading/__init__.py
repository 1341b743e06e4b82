"""Handed-in lessons: run behind walls, judged, and given back as pages and as tables of marks."""
