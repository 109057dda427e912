"""A graph as a table and as a picture."""
