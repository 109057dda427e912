"""Graphs: build, run, print, differentiate, save."""
