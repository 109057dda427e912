"""Small random networks in which all cells of a group read one number: a divisor, a total, a maximum, a mask."""

from __future__ import annotations

from typing import Any

import numpy as np

import specgrad as sg
from draw import Draw


def divided(d: Draw) -> Any:
    """Quotients by sums: whatever the divisor is off by, it is off once for all cells."""
    c, weights = d.array(6), d.array(2, 6)

    def net(x: Any) -> Any:
        total = sg.sum(sg.abs(x) if d.rng.random() < 0.7 else sg.abs(x * c)) + d.rng.choice((0.0, 1.0))
        y = (x * c if d.rng.random() < 0.5 else x) / sg.broadcast(total, (6,))
        return d.rng.choice(
            (lambda: y, lambda: y * 3.0 + c, lambda: weights @ y, lambda: y - x / sg.broadcast(total, (6,)))
        )()

    return net, (d.array(6),)


def masked(d: Draw) -> Any:
    """Softmax of scores, some of which a mask shuts out: by an infinity, the largest number, or a merely large one."""
    n, spread = d.rng.randint(2, 7), d.rng.choice((0.25, 1.0, 16.0))
    shut = d.numbers.random(n) < d.rng.choice((0.0, 0.4, 0.8))
    shut[d.rng.randrange(n)] = False
    low = d.rng.choice((-np.inf, -d.form.largest, -(2.0**13)))
    mask, w, v = np.where(shut, low, 0.0).astype(np.float32), d.array(n, 3, scale=spread), d.array(2, n)

    def net(x: Any) -> Any:
        z = d.rng.choice((lambda: w @ x, lambda: (w @ x) * 0.125, lambda: sg.relu(w @ x)))()
        p = sg.softmax(z + x.builder.constant(mask) if d.rng.random() < 0.8 else x.builder.constant(mask) + z)
        return d.rng.choice((lambda: p, lambda: v @ p, lambda: sg.log_softmax(z)))()

    return net, (d.array(3),)


def normalised(d: Draw) -> Any:
    """Groups less their mean, over the root of their mean square: near 0, or far from it, with weights or without."""
    n, groups = d.rng.randint(2, 6), d.rng.randint(1, 3)
    weight, bias, level = d.array(n), d.array(n), d.rng.choice((0.0, 1.0, 30.0, d.large()))
    eps, head = d.rng.choice((1e-5, 2.0**-10, 1.0)), d.array(2, n)

    def net(x: Any) -> Any:
        way = d.rng.randrange(5)
        x = x + level if way == 3 else sg.relu(x * 2.0) if way == 4 else x
        if d.rng.random() < 0.25:
            centred = x if d.rng.random() < 0.5 else x - x.mean(1, keepdims=True)
            square = (centred * centred).mean(1, keepdims=True) + eps
            y = centred / sg.sqrt(square) if d.rng.random() < 0.5 else centred * (1.0 / sg.sqrt(square))
        else:
            y = sg.layer_norm(x, (n,), *((weight, bias) if d.rng.random() < 0.5 else ()), eps=eps)
        return d.rng.choice((lambda: y, lambda: sg.relu(y), lambda: y @ head.T, lambda: y * 3.0 - x))()

    return net, (d.held(d.array(groups, n) + np.float32(level)),)


SHARED = {"divided": divided, "masked": masked, "normalised": normalised}
"""What all cells of a group have in common: a total, a mask, a mean and a root."""
