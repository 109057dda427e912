"""Graphs cut into parts along spatial axes, over several devices: what each computes, and what must move."""
