"""Operator test cases: made, shrunk, described."""
