"""Pictures: well-formed whatever their texts say, readable in light and dark."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from specgrad.scalar import upward, widths
from specgrad.svg import TONES, Canvas, Picture, fits, is_picture, shortened

HOSTILE = ("<script>alert(1)</script>", "]]>&amp;\"'", "\x1b[2J\x07", "\u202egnp", "a\nb", "\ud800", "x" * 500, "")


def luminance(colour: str) -> float:
    """Of sRGB, as WCAG 2.2 defines it."""
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_what_others_measure() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)  # the lightest grey that passes on white
    assert contrast("#777777", "#ffffff") < 4.5


@pytest.mark.parametrize("tone", TONES)
@pytest.mark.parametrize("page", [0, 1])
def test_every_text_can_be_read_on_its_ground(tone: str, page: int) -> None:
    fill, ink, line = TONES[tone][page]
    paper = TONES["paper"][page][0]
    assert contrast(ink, fill) >= 4.5
    if tone not in ("grain",) and not tone.startswith("width"):
        assert contrast(line, paper) >= 3  # lines that mean something


@pytest.mark.parametrize("text", HOSTILE)
def test_a_text_is_shown_and_not_obeyed(text: str) -> None:
    canvas = Canvas()
    canvas.text(0, 10, text)
    canvas.box(0, 0, 10, 10, "cell", title=text)
    canvas.path([(0, 0), (5, 0)], title=text, arrow=True)
    svg = canvas.picture(text).svg
    root = ET.fromstring(svg.encode())
    assert {e.tag.partition("}")[2] for e in root.iter()} <= {
        "svg",
        "title",
        "style",
        "rect",
        "text",
        "path",
        "polygon",
    }
    assert all(c.isprintable() or c == "\n" for c in svg)
    assert "script>" not in svg


def test_a_name_keeps_both_ends() -> None:
    for most in range(3, 40):
        short = shortened("features.denseblock1.denselayer2.conv1", most)
        assert len(short) <= most
        assert most < 6 or (short.startswith("fe") and short.endswith("v1"))
    assert shortened("conv1", 5) == "conv1"
    assert len(fits("w" * 100, 60, 10)) <= 60 / 5.6


def test_styles_stay_inside(tmp_path: Path) -> None:
    """A style element of one picture is obeyed by the whole page: each rule names our class."""
    canvas = Canvas()
    canvas.text(0, 0, "x", "bad")
    style = re.search(r"<style>(.*?)</style>", canvas.picture("t").svg)[1]
    rules = re.findall(r"([^{}]+)\{[^{}]*\}", style.replace("@media(prefers-color-scheme:dark){", ""))
    assert rules
    assert all(rule.strip("}").startswith(".sgp") for rule in rules)
    assert " id=" not in canvas.picture("t").svg


def test_a_file_is_known_as_ours(tmp_path: Path) -> None:
    picture = Canvas().picture("t")
    picture.save(tmp_path / "p.svg")
    data = (tmp_path / "p.svg").read_bytes()
    assert is_picture(data)
    assert data.decode() == picture.svg == picture._repr_svg_()
    assert not is_picture(b"<svg>somebody else's</svg>")
    assert "svg" not in repr(Picture("<svg/>")).lower().replace("letters of svg", "")


def test_widths_are_not_below_the_exact_ones() -> None:
    """Against fractions, at ends of very different size."""
    rng = np.random.default_rng(0)
    low = rng.normal(size=2000) * 10.0 ** rng.integers(-20, 20, 2000)
    high = low + abs(rng.normal(size=2000)) * 10.0 ** rng.integers(-20, 20, 2000)
    wide = widths(low, high)
    gaps = [Fraction(b) - Fraction(a) for a, b in zip(low.tolist(), high.tolist(), strict=True)]
    assert all(Fraction(w) >= g for w, g in zip(wide.tolist(), gaps, strict=True))
    assert any(Fraction(b - a) < g for a, b, g in zip(low.tolist(), high.tolist(), gaps, strict=True))  # the plain one
    assert all(Fraction(float(upward(w, 2))) >= Fraction(w) for w in wide.tolist())
    assert widths(np.array([-np.inf, 0.0]), np.array([np.inf, 1.0])).tolist() == [np.inf, 1.0]
