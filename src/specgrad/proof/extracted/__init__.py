"""The checker that is extracted from its Coq proof in verified/: its input, and the program."""
