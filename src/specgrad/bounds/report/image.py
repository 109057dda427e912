"""An input as an image: which shapes are one, and a PNG of it inside the page, without any other file.

    (1, C, H, W) and (C, H, W)      channels first, C = 1 or 3
    (1, H, W, C) and (H, W, C)      channels last

Sides of an image have 4 cells or more, so that five numbers in a row are none. Where both readings fit, channels come
first.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from specgrad.html_page import escape, wide

from ...scalar import Array

LEAST, MOST = 4, 1 << 20  # cells of a side; of a picture
OUTPUTS = 20
SIDE = 192  # of a picture on the page, about


def as_image(x: Array) -> Array | None:
    """Return x as (height, width, channels); None if its shape is not an image's.

    >>> [None if (y := as_image(np.zeros(s))) is None else y.shape for s in ((1, 3, 8, 9), (8, 9, 3), (1, 1, 1, 5))]
    [(8, 9, 3), (8, 9, 3), None]
    """
    shape = x.shape[1:] if x.ndim == 4 and x.shape[0] == 1 else x.shape
    if len(shape) != 3 or x.size > MOST:
        return None
    for channel, sides in ((0, shape[1:]), (2, shape[:2])):
        if shape[channel] in (1, 3) and min(sides) >= LEAST:
            return np.moveaxis(x.reshape(shape), channel, 2)
    return None


def png(pixels: Array) -> bytes:
    """Return pixels, bytes (height, width, 1 or 3), as the bytes of a PNG: grey or RGB, 8 bits each."""
    height, width, channels = pixels.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1).astype(np.uint8)], 1)
    head = struct.pack(">IIBBBBB", width, height, 8, 0 if channels == 1 else 2, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_png_chunk(name, data) for name, data in parts)


def _png_chunk(name: bytes, data: bytes) -> bytes:
    """Return one PNG chunk: length, 4-letter name, data and the checksum of both."""
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


@dataclass(frozen=True, eq=False)
class Pair:
    """A counterexample beside the input that it was moved from, and the network's outputs at both.

    x is the counterexample; before and after are the outputs at the original and at x.

    called   what the first one is
    """

    called: str
    original: Array
    x: Array
    before: Array
    after: Array

    @property
    def apart(self) -> Array:
        """Difference x - original, in float64."""
        return np.subtract(self.x, self.original, dtype=float)

    def to_json(self) -> dict[str, Any]:
        """Return JSON data of the input asked about: `about` (what it is called), its `x` and `y`, how many cells the
        counterexample moved (`moved`), and the most that one was (`farthest`).

        The counterexample's own x and y stand with it.
        """
        apart = np.abs(self.apart)
        data = {"about": self.called, "x": self.original.tolist(), "y": self.before.tolist()}
        return {**data, "moved": int((apart > 0).sum()), "farthest": float(apart.max(initial=0.0))}


def shown(pair: Pair) -> str:
    """Return HTML of both inputs of `pair` as images (if they are), their difference, and their outputs."""
    apart = np.abs(pair.apart)
    moved, farthest = int((apart > 0).sum()), float(apart.max(initial=0.0))
    text = f"{moved:,} of {apart.size:,} cells were moved, the farthest by {farthest:.4g}."
    return f"<p>{text}</p>{_images_html(pair)}{_inputs_table(pair)}{_outputs_table(pair)}"


def _images_html(pair: Pair) -> str:
    """Return HTML of both images and their difference; "" if the inputs are no images."""
    first, second = as_image(pair.original), as_image(pair.x)
    if first is None or second is None:
        return ""
    low, high = _value_range(first, second)
    most = float(np.abs(pair.apart).max(initial=0.0)) or 1.0
    difference = as_image(pair.apart)
    assert difference is not None
    size = f"{first.shape[1]} by {first.shape[0]} pixels"
    texts = (f"{pair.called}, {size}", f"the counterexample, {size}", f"their difference, {size}")
    scales = (f"black is {low:.3g}, white {high:.3g}",) * 2 + (f"grey is 0, black {-most:.3g}, white {most:.3g}",)
    pictures = (_to_bytes(first, low, high), _to_bytes(second, low, high), _to_bytes(difference, -most, most))
    return f'<div class="images">{"".join(map(_figure_html, texts, scales, pictures))}</div>'


def _value_range(*images: Array) -> tuple[float, float]:
    """Return the values shown as black and white in all `images`: 0 to 1 or 0 to 255 if all cells fit, else the
    extremes.
    """
    low, high = float(min(i.min() for i in images)), float(max(i.max() for i in images))
    for top in (1.0, 255.0):
        if low >= 0 and high <= top:
            return 0.0, top
    return low, high


def _to_bytes(image: Array, low: float, high: float) -> Array:
    """Return an image's values scaled from low..high to bytes 0..255; 127 or 128 everywhere if low == high."""
    share = (image.astype(float) - low) / (high - low) if high > low else np.full(image.shape, 0.5)
    return np.clip(np.rint(255 * share), 0, 255).astype(np.uint8)


def _figure_html(text: str, scale: str, pixels: Array) -> str:
    """Return an HTML figure of pixels with its caption: `text`, and small below it `scale`, what the colours mean."""
    height, width = pixels.shape[:2]
    times = max(1, round(SIDE / max(height, width)))
    data = base64.b64encode(png(pixels)).decode()
    size = f'width="{width * times}" height="{height * times}"'
    source = f"data:image/png;base64,{data}"
    said = f"<figcaption>{escape(text)}<br><small>{escape(scale)}</small></figcaption>"
    return f'<figure><img {size} alt="{escape(text)}; {escape(scale)}" src="{source}">{said}</figure>'


def _inputs_table(pair: Pair) -> str:
    """Return an HTML table of both inputs if they have few cells; else ""."""
    if pair.x.size > OUTPUTS:
        return ""
    values = zip(np.ravel(pair.original), np.ravel(pair.x), strict=True)
    return _table_html("input", pair.called, [(f"{a:.9g}", f"{b:.9g}") for a, b in values])


def _outputs_table(pair: Pair) -> str:
    """Return an HTML table of both outputs; of many, the largest ones."""
    before, after = np.ravel(pair.before), np.ravel(pair.after)
    order = list(range(len(after)))
    if len(order) > OUTPUTS:  # the largest of both
        order = sorted(set(np.argsort(-before)[: OUTPUTS // 2]) | set(np.argsort(-after)[: OUTPUTS // 2]))
    tops = (_argmax(before), _argmax(after))
    cells = [tuple(_output_html(v[j], j == top) for v, top in zip((before, after), tops, strict=True)) for j in order]
    more = f"<p>{len(after) - len(order):,} more outputs are smaller.</p>" if len(order) < len(after) else ""
    return _table_html("output", pair.called, cells, [int(j) for j in order]) + more


def _argmax(values: Array) -> int:
    """Return the index of the largest of `values`; -1 if there is one value only, or one is not finite."""
    return int(np.argmax(values)) if len(values) > 1 and np.isfinite(values).all() else -1


def _output_html(value: float, top: bool) -> str:
    """Return an output's value as HTML with 9 digits, bold and marked as largest if `top`."""
    text = f"{value:.9g}" if math.isfinite(value) else str(value)
    return f"<strong>{text} (largest)</strong>" if top else text


def _table_html(what: str, called: str, cells: Sequence[tuple[str, ...]], order: Sequence[int] | None = None) -> str:
    """Return an HTML table with a row per entry of `cells`: its number, the value at the original, the value at the
    counterexample.

    what heads the first column, called says what the original is, order gives the rows' numbers (None: 0, 1, ...).
    """
    rows = "".join(
        f'<tr><td class="number">{j}</td>' + "".join(f'<td class="number">{c}</td>' for c in pair) + "</tr>"
        for j, pair in zip(order or range(len(cells)), cells, strict=True)
    )
    columns = (what, called.removeprefix("the "), "counterexample")
    head = "".join(f'<th class="number">{escape(c)}' for c in columns)
    return wide(f'<table class="slim"><tr>{head}</tr>{rows}</table>')
