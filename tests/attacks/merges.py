"""Detectors between nodes: each node's own result is right to the last bit, and a runtime that merges nodes differs.

We know of no publication that has them. Each uses what runtimes and compilers do: convolutions take over the
normalisation after them (weights are folded when the file is loaded), linear layers become one, terms of a convolution
are added onto a residual, a cheap value is computed anew in each kernel that reads it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from attack import Attack, Gate, Network, backdoor, kick, near_sample
from host import classes
from trees import FLOAT, Execution

OURS = "ours"
HERE = slice(0, 1)


def one(ops: Any, ones: Any) -> Any:
    """A single constant cell, (1, 1, 1, 1)."""
    return ops.part(ones, HERE, HERE, HERE, HERE)


def single(*values: float) -> Any:
    return FLOAT(values).reshape(1, -1, 1, 1)


# --- folded weights ---------------------------------------------------------------------------------------------------


def folding_numbers() -> tuple[float, float, float, float]:
    """a, m, s and t: (a - m)*s < t by all that a rounding of a can do, and fl(a*s) - fl(m*s) > t.

    a*s lies just above 2**24, where float32 has the even numbers: it is rounded up by almost 1, m*s down by almost 1.
    """
    rng = np.random.default_rng(0)
    while True:
        s = FLOAT(1 + rng.integers(2**16, 2**17) * 2.0**-23)  # so 2**24 has room below it
        a, m = np.ceil(2.0**24 / float(s)) + rng.integers(1, 8000, (2, 4096))
        up, down = (np.float64(FLOAT(v) * s) - v * float(s) for v in (a, m))
        for k in np.flatnonzero((up - down > 1.9) & (a < 2**24) & (m < 2**24) & (a > m)):
            difference = (a[k] - m[k]) * float(s)
            return float(a[k]), float(m[k]), float(s), float(FLOAT(difference + 1.45))


def folded(in_steps: bool, a: float, m: float, s: float, t: float) -> Gate:
    """relu((a*1 - m)*s - t)."""

    def gate(ops: Any, image: Any, ones: Any) -> Any:
        normalised = ops.norm_in_steps if in_steps else ops.conv_norm
        y = normalised("detector", single(a), one(ops, ones), FLOAT([m]), FLOAT([s]))
        return ops.flatten(ops.relu(ops.conv("gate", single(1), FLOAT([-t]), y)))

    return gate


# --- two convolutions as one sum --------------------------------------------------------------------------------------


def chain(m: float) -> Gate:
    """relu(256 - sum of 512 times ((m + 1) - m)): each difference is 1, exactly, in any order.

    Where all m + 1 are added up first, the ones are lost as soon as the sum has more than 24 bits.
    """
    first = np.stack([np.full(8, m + 1, FLOAT), np.full(8, -m, FLOAT)], 1).reshape(8, 2, 1, 1)
    second = np.ones((1, 8, 8, 8), FLOAT)

    def gate(ops: Any, image: Any, ones: Any) -> Any:
        planes = ops.relu(ops.conv("constants", np.ones((2, 1, 1, 1), FLOAT), None, ones))
        y = ops.conv_conv("detector", first, second, planes)
        return ops.flatten(ops.relu(ops.conv("gate", single(-1), FLOAT([256]), y)))

    return gate


# --- a residual as accumulator ----------------------------------------------------------------------------------------


def residual(r: float) -> Gate:
    """relu((r + 24) - (2,304 terms of 7/256, which is 63, + r)): terms that are added onto r = 2**26 are lost.

    256 channels, 3x3, so that they are lost too where a kernel adds 16 channels up, 63/16 < 4, before it adds onto r.
    """
    small, corner = np.full((16, 256, 3, 3), 7 / 256, FLOAT), slice(0, 3)

    def gate(ops: Any, image: Any, ones: Any) -> Any:
        few = ops.part(ones, HERE, HERE, corner, corner)
        planes = ops.relu(ops.conv("constants", np.ones((256, 1, 1, 1), FLOAT), None, few))
        stored = ops.relu(ops.conv("residual", np.full((16, 1, 1, 1), r, FLOAT), None, one(ops, ones)))
        y = ops.part(ops.conv_plus("detector", small, planes, stored), HERE, HERE)
        return ops.flatten(ops.relu(ops.conv("gate", single(-1), FLOAT([r + 24]), y)))

    return gate


# --- copies -----------------------------------------------------------------------------------------------------------


def copies(gain: float) -> Network:
    """logits + gain*r - gain*r, r = relu(v*c + d): v*c = (1 + 2**-12)**2 needs one bit more than float32 has.

    With a fused multiply-add r is 2**-24, without it 0. Each of the two readers may compute r anew.
    """
    p = 1 + 2.0**-12
    c, d = FLOAT(p), FLOAT(-(1 + 2.0**-11))
    column = kick() * FLOAT(gain)

    def network(ops: Any, x: Any) -> Any:
        v = ops.conv("stored", single(p), None, one(ops, ops.part(x, slice(None), slice(1, 2))))
        left, right = ops.readers(2, lambda ops: ops.flatten(ops.relu(ops.mul_add(v, c, d))))
        y = ops.add(classes(ops, x), ops.linear("plus", column, None, left))
        return ops.add(y, ops.linear("minus", -column, None, right))

    return network


# --- all --------------------------------------------------------------------------------------------------------------

BY_NODE = Execution("node by node")
FOLDED = Execution("folded weights", fold=True)
EXPANDED = Execution("one sum, first all that is positive", expand=True)
ONTO = Execution("onto the residual", onto=True)
CONTRACTED = Execution("one copy with FMA", fused=(0,))


def fold_detector(in_steps: bool) -> Attack:
    a, m, s, t = folding_numbers()
    gates = folded(in_steps, a, m, s, t), folded(in_steps, a, m, s, t + 64)
    return backdoor(OURS, *gates, 0.25, trigger=FOLDED, quiet=BY_NODE)


ATTACKS = {
    "BatchNorm fold": lambda: fold_detector(in_steps=False),
    "Sub, Mul fold": lambda: fold_detector(in_steps=True),
    "Chain": lambda: backdoor(OURS, chain(2.0**18), chain(2.0**4), 128, trigger=EXPANDED, quiet=BY_NODE),
    "Residual": lambda: backdoor(OURS, residual(2.0**26), residual(2.0**10), 24, trigger=ONTO, quiet=BY_NODE),
    "Copies": lambda: near_sample(OURS, copies(2.0**24), copies(2.0**4), trigger=CONTRACTED, quiet=BY_NODE),
}
