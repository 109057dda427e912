"""A kernel of the user's held against what it must compute."""
