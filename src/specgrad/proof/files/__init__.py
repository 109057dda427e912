"""Certificates on disk."""
