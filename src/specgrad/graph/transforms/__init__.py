"""Graphs from graphs: derivatives, layouts."""
