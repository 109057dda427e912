"""Replay of a certificate over rationals."""
