"""Nodes, trees of arguments, symbolic sizes, the interpreter."""
