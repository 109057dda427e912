"""Graphs whose values are cut along axes: who owns which cells, and what must move."""
