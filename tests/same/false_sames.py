"""The hunt for a false "same": pairs of networks whose normal forms are equal and whose values are not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from exactly import agree
from specgrad.check.comparison.compare import Forms, compare_terms
from specgrad.equivalence.normal_form import normal_form
from specgrad.equivalence.term_table import TermTable
from specgrad.errors import SpecgradError
from specgrad.graph.graph import Graph
from spellings import mutated, spelled


def verdict(a: Graph, b: Graph) -> str:
    """What `compare` says before it looks at any input."""
    table = TermTable()
    return compare_terms(Forms(table, normal_form(a, table), normal_form(b, table))).verdict


def same(a: Graph, b: Graph) -> bool:
    return verdict(a, b) == "same"


def pairs(seed: int) -> Iterator[tuple[str, Graph, Graph]]:
    """One network in two spellings, with a layer spelled wrongly, and with one thing changed in its graph."""
    try:
        first = spelled(seed, 0)
        others = [("spelling", spelled(seed, 1)), ("fault", spelled(seed, 2, 1)), ("fault", spelled(seed, 4, 2))]
        others += [("mutant", mutated(first, seed)), ("mutant", mutated(others[0][1], seed + 9))]
        others += [("mutant", mutated(first, k + seed)) for k in (10**6, 2 * 10**6)]
    except SpecgradError:  # a window that does not fit
        return
    shape = first.nodes[first.output_positions[0]].shape
    for kind, other in others:
        if other is not None and other.nodes[other.output_positions[0]].shape == shape:
            yield kind, first, other


def hunt(seeds: Iterable[int]) -> tuple[list[str], Counter[tuple[str, bool]]]:
    """Every false "same", and how often each kind of pair was said to be the same."""
    false, counts = [], Counter[tuple[str, bool]]()
    for seed in seeds:
        for kind, a, b in pairs(seed):
            said = verdict(a, b)
            counts[kind, said == "same"] += 1
            if said == "same" and not agree(a, b, seed):
                false.append(f"{kind} of network {seed}")
            if said == "same within rounding" and not agree(a, b, seed, within=2.0**-12):
                false.append(f"{kind} of network {seed}: within rounding")
    return false, counts
