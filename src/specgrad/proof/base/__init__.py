"""Exact numbers, the network and the tree that every checker reads."""
