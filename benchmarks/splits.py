"""Input splits: boxes per CPU second one by one and in batches; what bounds in float32 would cost.

    python benchmarks/splits.py > benchmarks/splits.txt        # also: python benchmarks/families.py --speed

A search in float32 must be followed by a rigorous pass over its leaves, which are half of all boxes: it pays where
bounds in float32 take less than half the time.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import torch

from families import instances
from specgrad.bounds.linear.relaxation.bound_layers import BoundLinear
from specgrad.bounds.search.certify import _Certifier
from specgrad.bounds.search.input_split.search import Boxes, split_inputs
from specgrad.bounds.search.statement.problem import question_of

CHOSEN = (("acasxu", "4_8", "prop_1"), ("linearizenn", "AllInOne_30_30", ""), ("cersyve", "lane_keep_pretrain_inv", ""))
CACHED = ("adjoint_fn", "factors", "constant", "sparse", "matrix", "convolution", "uses_float32")


def prepared(family: str, network: str, statement: str) -> tuple[Any, ...]:
    """A run, and what its linear bounds of the first case leave open: the case, margins, nearest rows, their walk."""
    chosen = next(i for i in instances([family]) if i.files and network in i.network and statement in i.property)
    assert chosen.files is not None
    asked = question_of(*map(str, chosen.files), low=None, high=None, norm="inf", shape=None)
    run = _Certifier(asked, time.monotonic() + 3600, None)
    return run, *run._linear_bounds(asked.stated.cases[0])[:4]


def batched(run: Any, case: Any, root: Any, seconds: float) -> None:
    """The same search with batches of several sizes."""
    for size in (1, 8, 64, 512):
        boxes = run._batched_bounds(case, root)
        boxes.batch = min(boxes.batch, size)
        start = time.process_time()
        outcome = split_inputs(run.network, case, boxes, time.monotonic() + seconds)
        rate = outcome.problems / (time.process_time() - start)
        print(f"    batches of {boxes.batch:3}: {rate:8.1f} boxes per CPU second, {outcome.problems} boxes", flush=True)


def leaves(run: Any, case: Any, boxes: Boxes, seconds: float) -> list[Any]:
    """The boxes that a search excludes."""
    kept: list[Any] = []
    original = boxes.excluded

    def watched(low: Any, high: Any, known: Any = None) -> Any:
        answer = original(low, high, known)
        done = (answer[0] > 0).all(1)
        kept.append((low[done], high[done]))
        return answer

    with mock.patch.object(boxes, "excluded", watched):
        split_inputs(run.network, case, boxes, time.monotonic() + seconds)
    return [torch.cat(ends) for ends in zip(*kept, strict=True)]


@contextmanager
def in_single() -> Iterator[None]:
    """Whoever asks for a new float64 tensor gets a float32 one: only to measure what that costs."""

    def single(make: Any) -> Any:
        return lambda *a, **k: make(*a, **(k | ({"dtype": torch.float32} if k.get("dtype") == torch.float64 else {})))

    with mock.patch.multiple(torch, eye=single(torch.eye), zeros=single(torch.zeros), ones=single(torch.ones)):
        yield


def single_boxes(boxes: Boxes) -> Boxes:
    """The same bounds computed in float32, and so no proof of anything."""
    state, layers = boxes.root.state, {}
    for i, layer in state.layers.items():
        layers[i] = copy.copy(layer)
        for name in CACHED:
            layers[i].__dict__.pop(name, None)
        if isinstance(layer, BoundLinear):
            layers[i].args = [a.float() if isinstance(a, torch.Tensor) else a for a in layer.args]

    def small(d: Any) -> Any:
        return {i: tuple(e.float() for e in v) if isinstance(v, tuple) else v.float() for i, v in d.items()}

    ends, errors, sizes = map(small, (state.intervals, state.errors, state.sizes))
    single = copy.copy(boxes)
    single.root = copy.copy(boxes.root)
    fresh: dict[str, Any] = {
        name: {} for name in ("cached_relaxations", "chains", "cached_costs", "duplicates", "folds")
    }
    single.root.state = replace(state, layers=layers, ends=ends, errors=errors, sizes=sizes, **fresh)
    single.rows, single.targets, single.slack = (t.float() for t in (boxes.rows, boxes.targets, boxes.slack))
    whole = tuple(e.float() for e in boxes.whole())
    single.whole = lambda: whole  # type: ignore[method-assign, assignment, return-value]
    return single


def precisions(run: Any, case: Any, root: Any, seconds: float) -> None:
    boxes = run._batched_bounds(case, root)
    low, high = (ends[: boxes.batch] for ends in leaves(run, case, boxes, seconds))
    single = single_boxes(boxes)
    spent = {"float64": [0.0], "float32": [0.0]}
    for _ in range(4):  # the first is not counted: layers are made ready
        start = time.process_time()
        boxes.bounds(low, high)
        spent["float64"].append(time.process_time() - start)
        with in_single():
            start = time.process_time()
            single.bounds(low.float(), high.float())
            spent["float32"].append(time.process_time() - start)
    a, b = (min(spent[name][2:]) / len(low) * 1e3 for name in ("float64", "float32"))
    text = f"a box of {len(low)} leaves at once: {a:.2f} ms in float64, {b:.2f} ms in float32"
    print(f"    {text}; float32 search and a rigorous pass: {(b + a / 2) / a:.2f} times the time", flush=True)


def main(seconds: float = 8.0) -> None:
    for name in CHOSEN:
        print(" ".join(name).strip(), flush=True)
        run, case, _, _, root = prepared(*name)
        batched(run, case, root, seconds)
        precisions(run, case, root, seconds)


if __name__ == "__main__":
    main()
