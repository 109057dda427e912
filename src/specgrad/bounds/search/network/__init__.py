"""The network of a verification problem, as it is run and attacked."""
