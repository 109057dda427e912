"""Numbers that make roundings show: of one format, in several tastes."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

from floats import Format, round_float

TASTES = ("gentle", "gentle", "mixed", "mixed", "absorbed", "absorbed", "cancelling", "tiny", "subnormal", "huge")


class Draw:
    """Numbers of one format: gentle, of mixed sizes, cancelling, absorbed by a large one, tiny, subnormal, huge."""

    def __init__(self, seed: Any, form: Format) -> None:
        self.rng, self.form = Random(str(seed)), form
        self.numbers = np.random.default_rng([self.rng.getrandbits(32)])
        self.taste = self.rng.choice(TASTES)

    def held(self, x: Any) -> np.ndarray:
        """x in the format, as float32 where that holds every number of it."""
        found = np.array([round_float(float(v), self.form) for v in np.asarray(x, dtype=float).flat])
        return found.reshape(np.shape(x)).astype(np.float32)

    def array(self, *shape: int, scale: float = 1.0) -> np.ndarray:
        return self.held(getattr(self, f"_{self.taste}")(shape) * scale)

    def _gentle(self, shape: tuple[int, ...]) -> np.ndarray:
        return self.numbers.normal(size=shape)

    def _mixed(self, shape: tuple[int, ...]) -> np.ndarray:
        return self.numbers.normal(size=shape) * 2.0 ** self.numbers.integers(-6, 6, shape)

    def _absorbed(self, shape: tuple[int, ...]) -> np.ndarray:
        """1 and halves of its last digit: each of them is lost beside it, always the same way."""
        small = self.numbers.choice([0.5, 0.75, 1.0], shape) * 2.0 ** (1 - self.form.digits)
        return np.where(self.numbers.random(shape) < 0.3, 1.0, small)

    def _cancelling(self, shape: tuple[int, ...]) -> np.ndarray:
        big = 2.0 ** (self.form.digits - 3)
        return self.numbers.choice([big, -big, 1.0, 1.5, -1.25], shape)

    def _tiny(self, shape: tuple[int, ...]) -> np.ndarray:
        lowest = max(self.form.lowest, -126)
        return self.numbers.normal(size=shape) * 2.0 ** self.numbers.integers(lowest // 2 - 8, lowest // 2 + 8, shape)

    def _subnormal(self, shape: tuple[int, ...]) -> np.ndarray:
        """Subnormal numbers beside large ones: a flushed factor takes the whole product along."""
        small = self.numbers.normal(size=shape) * 2.0 ** (self.form.lowest - 2)
        return np.where(
            self.numbers.random(shape) < 0.5, small, self.numbers.normal(size=shape) * 2.0**-self.form.lowest
        )

    def _huge(self, shape: tuple[int, ...]) -> np.ndarray:
        """Sums overflow in one order and not in another."""
        return self.numbers.choice([-1.0, 1.0, 0.7], shape) * 2.0 ** (self.form.highest - 1)

    def positive(self, *shape: int) -> np.ndarray:
        return self.held(self.numbers.uniform(0.25, 4.0, shape))

    def large(self) -> float:
        """A constant that swallows the digits of what is near 1."""
        return float(
            self.held(
                self.numbers.uniform(1, 2)
                * 2.0 ** self.rng.randint(self.form.digits - 4, min(self.form.digits + 3, self.form.highest - 3))
            )
        )

    def divisor(self) -> float:
        return float(self.held(self.rng.choice((3, 5, 7, 11, 19, 41, 0.7, 49, 6))))
