"""Graph.v's own sweep, computed by Rocq over whole numbers, beside ours: values, tangents, cotangents of random graphs.

The theorems say that the sweep of Graph.v is the adjoint of the tangent, and gives the gradient. That `specgrad.vjp`
computes the same is asked here: places that are read more than once, an output that is named twice, ties of maxima.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import rocq
import specgrad as sg

HEAD = """
From Coq Require Import ZArith List InitialRing.
From Specgrad Require Import Numbers Window Readers Conv AvgPool MaxPool Graph GraphOperators.
Import ListNotations.
Open Scope Z_scope.
Definition whole : numbers Z := {| zero := 0; one := 1; add := Z.add; mul := Z.mul; sub := Z.sub; opp := Z.opp;
  div := Z.div; laws := Zth |}.
Definition of_list shape (l : list Z) : tensor Z := fun p => nth (Z.to_nat (ravel shape p)) l 0.
Definition at_place p op args : node (F := Z) := {| op := op; args := args; place := p |}.
Definition axis := [Strided 4 3 1 1 1 1 4].
Definition pool := max_pool_node whole Z.ltb (mapped 1 :: mapped 2 :: axis).
Definition conv groups := conv_node whole 1 groups 2 2 axis.
"""
SHAPES = [(1, 2, 4), (1, 2, 4), (2, 2, 3), (2, 1, 3), (2,)]
"""Of the inputs: two tensors, weights for one group and for two, a bias."""
SHAPE = SHAPES[0]
CALLS: dict[str, Callable[..., Any]] = {
    "add_node whole": lambda x, y: x + y,
    "sub_node whole": lambda x, y: x - y,
    "mul_node whole": lambda x, y: x * y,
    "pool": lambda x: sg.max_pool(x, (3,), stride=1, padding=1),
    "conv 1": lambda x, w, b: sg.conv(w, b, x, padding=1),
    "conv 2": lambda x, w, b: sg.conv(w, b, x, padding=1, groups=2),
}
"""Nodes as Rocq writes them, and what they are in Python."""


@dataclass(frozen=True)
class Case:
    """A graph of whole numbers: its nodes write places from 5 on; two outputs, which may be one place."""

    nodes: list[tuple[str, tuple[int, ...]]]
    outputs: tuple[int, int]
    x: list[np.ndarray]
    dx: list[np.ndarray]
    gy: list[np.ndarray]

    def run(self, *places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        made = list(places)
        for name, args in self.nodes:
            made.append(CALLS[name](*(made[a] for a in args)))
        return made[self.outputs[0]], made[self.outputs[1]]


def case(rng: Random) -> Case:
    nodes: list[tuple[str, tuple[int, ...]]] = []
    for name in rng.sample([*CALLS, "mul_node whole", "add_node whole"], 4):
        full = [0, 1, *range(5, 5 + len(nodes))]
        args = {"pool": 1, "conv 1": 1, "conv 2": 1}.get(name, 2)
        read = [rng.choice(full[-3:]) for _ in range(args)]
        nodes.append((name, (*read, *{"conv 1": (2, 4), "conv 2": (3, 4)}.get(name, ()))))
    outputs = (8, rng.choice([6, 7, 8]))

    def numbers(shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
        return [np.array([rng.randint(-2, 2) for _ in range(np.prod(s))], dtype=object).reshape(s) for s in shapes]

    return Case(nodes, outputs, numbers(SHAPES), numbers(SHAPES), numbers([SHAPE, SHAPE]))


def ours(c: Case) -> list[int]:
    """Values of both outputs, their tangents, and the cotangents of all inputs, in one row."""
    fn = sg.trace(c.run, *SHAPES)
    tangents = sg.jvp(fn)(*map(sg.exact, c.x), *map(sg.exact, c.dx))
    cotangents = sg.vjp(fn)(*map(sg.exact, c.x), *map(sg.exact, c.gy))
    return [int(v) for part in (*tangents, *cotangents[2:]) for v in np.ravel(part)]


def asked(c: Case) -> str:
    """The same of Rocq: `run`, `run_jvp` and `sweep` of Graph.v."""

    def row(a: np.ndarray) -> str:
        return f"[{'; '.join(f'({v})' for v in a.ravel())}]"

    def tensors(arrays: list[np.ndarray], shapes: Sequence[tuple[int, ...]]) -> str:
        given = "".join(
            f"| {n}%nat => of_list {list(s)} {row(a)} " for n, (a, s) in enumerate(zip(arrays, shapes, strict=True))
        )
        return f"(fun p => match p with {given}| _ => fun _ => 0 end)".replace(",", ";")

    def nats(numbers: Sequence[int]) -> str:
        return f"[{'; '.join(f'{n}%nat' for n in numbers)}]"

    graph = "; ".join(f"at_place {n}%nat ({name}) {nats(args)}" for n, (name, args) in enumerate(c.nodes, len(SHAPES)))
    x, dx, gy = tensors(c.x, SHAPES), tensors(c.dx, SHAPES), tensors(c.gy, [SHAPE, SHAPE])
    cells = [f"(positions {list(s)})".replace(",", ";") for s in SHAPES]
    parts = [f"map ({f} {o}%nat) {cells[0]}" for f in ("run g x", "run_jvp g x dx") for o in c.outputs]
    parts += [f"map (sweep whole g x (seeds whole {nats(c.outputs)} gy) {n}%nat) {s}" for n, s in enumerate(cells)]
    return (
        f"Eval vm_compute in let g := [{graph}] in let x := {x} in let dx := {dx} in let gy := {gy} in "
        f"concat [{'; '.join(parts)}].\n"
    )


def theirs(cases: list[Case], folder: Path) -> list[list[int]]:
    rocq.make("GraphOperators.vo")
    (folder / "asked.v").write_text(HEAD + "".join(map(asked, cases)), encoding="utf-8")
    command = ["coqc", "-R", str(rocq.VERIFIED), "Specgrad", str(folder / "asked.v")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"= \[(.*?)\]", done.stdout, re.DOTALL)
    return [[int(v) for v in row.split(";")] for row in rows]


@pytest.mark.parametrize("count", [6, pytest.param(100, marks=pytest.mark.slow)])
def test_our_sweep_is_that_of_the_theorem(count: int, tmp_path: Path) -> None:
    cases = [case(Random(seed)) for seed in range(count)]
    assert [ours(c) for c in cases] == theirs(cases, tmp_path)
    assert any(len(set(c.outputs)) == 1 for c in cases), "an output that is named twice"
