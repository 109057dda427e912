"""What statements say of the executions that they hold for: whose errors of functions, and what is excluded."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from specgrad.declared_errors import declared
from specgrad.op import REGISTRY
from specgrad.rounding import Arithmetic, radius
from specgrad.rounding.stated import deployment_of, functions_of

SOURCE = Path(sg.__file__).parent


class Asked(dict[str, Any]):
    """A table of errors that remembers what it was asked for."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        super().__init__(table)
        self.names: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.names |= {key} & self.keys()
        return super().get(key, default)


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_functions_are_those_whose_errors_a_radius_asks_for(name: str) -> None:
    op, rng = REGISTRY[name], Random(0)
    if op.vjp is None and op.kind == "index":
        return
    for _ in range(3):
        args, params = op.cases(rng)
        arrays = [np.asarray(a) for a in args]
        if any(a.dtype.kind == "i" for a in arrays) or op.index_args:
            return
        table = Asked(declared())
        graph = sg.trace(lambda *xs: sg.op.apply(op, *xs, **params), *(a.shape for a in arrays))  # noqa: B023
        radius(graph, *(a.astype(np.float64) for a in arrays), arithmetic=Arithmetic(ulps=table))
        assert set(functions_of(Arithmetic(), graph)) == table.names


def test_whose_errors_were_taken_is_said() -> None:
    graph = sg.trace(lambda x: sg.tanh(x) + sg.sqrt(x), (2,))
    texts = [deployment_of(a, graph)["functions"] for a in (None, Arithmetic(ulps=declared("jax")))]
    assert "sqrt is off by at most 1.2 u of the result, tanh is off by at most 11 u of the result" in texts[0]
    assert texts[0].endswith("u = 2**-24, the widest of 10 runtimes")
    assert "tanh is off by at most 8 u" in texts[1]
    assert texts[1].endswith("of JAX 0.10.2")
    given = Arithmetic("bfloat16", ulps={"tanh": 3.0, "sqrt": 1.0})
    assert deployment_of(given, graph)["functions"].endswith("u = 2**-8, as given by the caller")
    assert "functions" not in deployment_of(None, sg.trace(sg.relu, (2,)))
    assert "functions" not in deployment_of(Arithmetic("real"), graph)


def test_nobody_states_an_arithmetic_alone() -> None:
    """`X.deployment` of an arithmetic says nothing of a graph; who has a graph takes `deployment_of`."""
    alone = re.compile(r"(arithmetic|arithmetic_of\([^()]*\)|used|executions\([^()]*\))\.deployment\b")
    allowed = {
        "rounding/stated.py",
        "check/conform/conformance.py",  # one operator, as the next
        "safety/vectors/pack.py",
        "check/tolerances/node_tests/report.py",  # a thousand graphs: what is assumed of each stands beside it
        "check/tolerances/command.py",
    }
    found = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if any(alone.search(line) and "`" not in line for line in path.read_text().splitlines())
    }
    assert found == allowed
    assert alone.search("return Preserved(title, used.deployment)")
    assert alone.search("said_of(arithmetic_of(target).deployment, formats)")
