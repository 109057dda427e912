"""Bounds of all nodes of a network, in order."""
