"""The property of a verification problem."""
