"""Replay of trees of splits: many leaves at once, in fixed point."""
