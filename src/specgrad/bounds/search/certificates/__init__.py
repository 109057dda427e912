"""Certificates of what a search has proven."""
