"""Panels to play with, the same in a lesson and in the live demo.

In each file a plain function computes what is shown, with no widget in sight, and a panel puts controls in front of it.
"""
