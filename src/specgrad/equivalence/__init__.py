"""Equivalence of two graphs as real functions: normal forms over exact numbers, whose equality is a proof."""
