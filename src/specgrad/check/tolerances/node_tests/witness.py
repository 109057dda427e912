"""Correct executions of a node test in which sums come out as large, or as small, as some order makes them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from specgrad.errors import SpecgradError
from specgrad.scalar import Array

from ...models.emulate import MAX_MULTIPLY_ADDS, Executor, multiply_adds
from .read import ReadTest


def executions(read: ReadTest) -> Iterator[list[Array]]:
    """Yield the outputs of correct executions, node by node, with sums in several orders, pushed up or down.

    None for a test that is not of float32 alone, or whose inputs are not finite: nothing is emulated then.
    """
    if read.formats or read.arithmetic.dtype != "float32" or multiply_adds(read.graph) > MAX_MULTIPLY_ADDS:
        return
    if not all(np.isfinite(x).all() for x in read.inputs):
        return
    try:
        executor = Executor(read.graph, read.arithmetic)
        last = read.graph.output_positions
        for sign in (0.0, 1.0, -1.0):
            ones = {i: np.full(node.shape, sign) for i, node in enumerate(read.graph.nodes)}
            yield executor.run(read.inputs, ones)
            yield executor.run(read.inputs, {i: ones[i] for i in last})
    except SpecgradError:  # an operator that is not emulated
        return
