"""Replay of many leaves of a tree at once, in fixed point."""
