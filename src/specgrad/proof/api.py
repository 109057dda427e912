"""Certificates as objects: `specgrad.bounds.prove` makes them, `check` replays them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..graph.graph import Graph
from ..properties.property import Property, PropertyError, robustness
from ..properties.vnnlib import read
from .base.deployed_graph import deployed_graph
from .files.certificate import DEFAULT_SECONDS, Checked, read_files, store
from .files.certificate import check as check_bytes


@dataclass(frozen=True)
class Certificate:
    """The bytes of a certificate's two files (`text`: JSON, `packed`: safetensors). It proves nothing before `check`
    has replayed it."""

    text: bytes
    packed: bytes

    def save(self, path: str | Path) -> None:
        """Write `path` (.json) and the arrays beside it (.safetensors); existing files are replaced."""
        store(path, self.text, self.packed)

    @staticmethod
    def load(path: str | Path) -> Certificate:
        """Return the pair of files that `save` or `specgrad certify --certificate` wrote.

        Raise OSError if one cannot be read.
        """
        return Certificate(*read_files(Path(path)))


def as_property(statement: Any, graph: Graph, *, low: Any = None, high: Any = None) -> Property:
    """Return `statement` as a Property: it is one, or the path of a VNN-LIB file, or (x, label, eps).

    low, high   limits of every input, for (x, label, eps) alone; PropertyError with anything else
    """
    if isinstance(statement, tuple):
        x, label, eps = statement
        outputs = int(np.prod(graph.nodes[graph.output_positions[0]].shape))
        return robustness(x, label, eps, outputs, low=low, high=high)
    if low is not None or high is not None:
        raise PropertyError("low and high go with (x, label, eps); a property has its own bounds")
    return statement if isinstance(statement, Property) else read(statement)


def check(
    certificate: Certificate | str | Path,
    graph: Graph,
    statement: Any,
    *,
    low: Any = None,
    high: Any = None,
    seconds: float = DEFAULT_SECONDS,
    assume: bool = False,
) -> Checked:
    """Replay a certificate in exact arithmetic and return what it proves; raise ReplayError if it proves nothing.

    certificate   the object, or the path of its .json file
    graph         the network; its constants are rounded to float32, as they are deployed
    statement     the property that it must be a certificate of: see `as_property`
    assume        functions may be declared more accurate than they were measured
                  (specgrad.proof.base.executions.MEASURED)

    >>> import specgrad as sg
    >>> from specgrad.bounds import prove
    >>> graph = sg.trace(lambda x: sg.relu(sg.linear(np.float32([[1, 1], [1, -1]]), None, x)), (2,))
    >>> certificate = prove(graph, ([1.0, 0.5], 0, 0.25))
    >>> print(check(certificate, graph, ([1.0, 0.5], 0, 0.25)))  # doctest: +ELLIPSIS
    valid: on a box of 2 inputs; the widest: X_0 from 0.75 to 1.25; the first: X_0 from 0.75 to 1.25, X_1 from ...
      Y_0 - Y_1 <= 0 never happens; margin 0.49...
    network: digest ...
    executions: float32, fused; `deployment` says what that includes
    >>> check(certificate, graph, ([1.0, 0.5], 0, 0.3))
    Traceback (most recent call last):
    specgrad.proof.base.rationals.ReplayError: certificate: the certificate's box does not hold the property's
    """
    deployed = deployed_graph(graph)
    given = certificate if isinstance(certificate, Certificate) else Certificate.load(certificate)
    question = as_property(statement, deployed, low=low, high=high)
    return check_bytes(given.text, given.packed, deployed, question, seconds=seconds, assume=assume)
