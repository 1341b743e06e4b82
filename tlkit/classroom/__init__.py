"""Exercises, panels, and the lessons as files: for those who teach and those who learn."""
