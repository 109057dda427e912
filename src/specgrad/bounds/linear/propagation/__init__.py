"""Linear bounds backwards through a network."""
