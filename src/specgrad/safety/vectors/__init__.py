"""Test vectors by equivalence class: inputs, exact answers and proven radii, as files that need no library of ours.

OPERATORS    the classes of every operator
vectors      the cases of one of them with their answers
write_pack   all of it as a folder
"""

from .pack import INCOMPLETE, OPERATORS, Pack, chosen, coverage, vectors, write_pack

__all__ = ["INCOMPLETE", "OPERATORS", "Pack", "chosen", "coverage", "vectors", "write_pack"]
