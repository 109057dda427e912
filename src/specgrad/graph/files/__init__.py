"""Graphs on disk."""
