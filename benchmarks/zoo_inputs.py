"""Inputs that look like what the models of the zoo were made for: pictures, lines of digits, speech, a file's bytes.

All are drawn here with NumPy, from a fixed seed: nothing is downloaded, and every machine has the same ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
MEAN, SPREAD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
"""What preprocessing for ImageNet takes from a pixel, and divides by."""

DIGITS = ("75557", "26227", "71747", "71717", "55711", "74717", "74757", "71111", "75757", "75717")
"""A digit each: five rows of three pixels, a row as an octal figure."""


def picture(height: int, width: int, seed: int = 0) -> Array:
    """Pixels 0 to 255 of shape (height, width, 3): soft light, a few shapes with edges, and a camera's noise."""
    rng = np.random.default_rng(seed)
    v, u = np.mgrid[0:height, 0:width] / max(height, width)
    image = np.full((height, width, 3), 0.45)
    for k in range(12):  # the light: waves, the shorter the weaker
        a, b, phase = *rng.normal(size=2) * 2 ** (k / 4), rng.uniform(0, 2 * np.pi)
        image += np.sin(2 * np.pi * (a * u + b * v) + phase)[..., None] * rng.normal(size=3) * 0.12 / 2 ** (k / 4)
    for _ in range(6):
        y, x, r = rng.uniform(0, v.max()), rng.uniform(0, u.max()), rng.uniform(0.05, 0.25)
        far = np.hypot(v - y, u - x) if rng.random() < 0.5 else np.maximum(abs(v - y), abs(u - x))
        image[far < r] = 0.5 * image[far < r] + 0.5 * rng.uniform(0, 1, 3)
    return _pixels(image, rng)


def digits(height: int, width: int, seed: int = 0) -> Array:
    """Pixels 0 to 255 of shape (height, width, 3): dark digits in a line on bright paper, edges softened."""
    rng = np.random.default_rng(seed)
    size = max(1, int(height * 0.6) // 5)
    ink = np.zeros((height, width))
    top, left = (height - 5 * size) // 2, size
    while left + 3 * size < width:
        glyph = [[int(row) >> (2 - k) & 1 for k in range(3)] for row in DIGITS[rng.integers(10)]]
        ink[top : top + 5 * size, left : left + 3 * size] = np.kron(glyph, np.ones((size, size)))
        left += 4 * size
    for axis in (0, 1):
        ink = (np.roll(ink, 1, axis) + 2 * ink + np.roll(ink, -1, axis)) / 4
    light = 0.85 + 0.1 * np.linspace(0, 1, width)
    return _pixels((light * (1 - 0.8 * ink))[..., None] * np.array([1, 0.98, 0.95]), rng)


def page(height: int, width: int, seed: int = 0) -> Array:
    """Pixels 0 to 255 of shape (height, width, 3): lines of digits below each other, as a scanned page has them."""
    lines = max(1, height // 48)
    parts = [digits(height // lines, width, seed + k) for k in range(lines)]
    rest = np.full((height - sum(map(len, parts)), width, 3), 220, np.uint8)
    return np.concatenate([*parts, rest])


def _pixels(image: Array, rng: np.random.Generator) -> Array:
    noisy = image + rng.normal(size=image.shape) * 0.01
    return np.round(np.clip(noisy, 0, 1) * 255).astype(np.uint8)


def channels_first(pixels: Array, mean: Any = 0.0, spread: Any = 1.0) -> Array:
    """A float32 batch of one, (pixels / 255 - mean) / spread, as preprocessing computes it."""
    scaled = (pixels.astype(np.float32) / 255 - np.asarray(mean)) / np.asarray(spread)
    return np.ascontiguousarray(scaled.astype(np.float32).transpose(2, 0, 1)[None])


def grey(pixels: Array) -> Array:
    """One channel of the three, by the usual weights."""
    return np.asarray(pixels @ np.array([0.299, 0.587, 0.114]))[..., None]


def speech(samples: int, rate: int = 16_000) -> Array:
    """A float32 voice of that many samples: harmonics of a gliding pitch, louder and softer four times a second."""
    t = np.arange(samples) / rate
    pitch = 2 * np.pi * (120 * t + 8 * np.sin(2 * np.pi * 3 * t) / (2 * np.pi))
    voice = sum(np.sin(k * pitch) / k * np.exp(-(((k * 120 - 500) / 900) ** 2)) for k in range(1, 30))
    noise = np.random.default_rng(0).normal(size=samples) * 0.003
    return np.asarray(0.1 * voice * (0.6 + 0.4 * np.sin(2 * np.pi * 4 * t)) + noise, np.float32)


def table_bytes(size: int) -> bytes:
    """The first bytes of a table with commas, as a file may begin."""
    rows = (f"{k},{k * k % 97},{'abcdefghij'[k % 10]},{k / 7:.3f}" for k in range(size))
    return ("number,square,letter,seventh\n" + "\n".join(rows)).encode()[:size]
