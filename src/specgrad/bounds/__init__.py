"""Bounds that hold for the deployed network, and the verdicts that rest on them."""
