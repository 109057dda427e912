"""Pages of reports: colours that can be read in light and dark, tables that scroll, names shortened, ways to rows."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from specgrad.check.auditing.audit import Audit
from specgrad.check.auditing.layer import LayerVerdict
from specgrad.check.pages import MAX_UNFOLDED_LAYERS, MEANINGS, audit_page
from specgrad.check.verdicts.judge import SEVERITY, Verdict
from specgrad.html_page import MAX_NAME_CHARS, STYLE, legend, named, page, tone_of
from test_picture import contrast

LONG = "/features/denseblock4/denselayer16/conv2/Conv_quantized"
LAYERS = (
    LayerVerdict("stem", "conv k3", (1, 4, 8, 8), Verdict("rounding", 0.25)),
    LayerVerdict(
        LONG, "max_pool k2", (1, 4, 4, 4), Verdict("differs", 7.0, index=(0, 0, 0, 3), actual=1.0, expected=2.0)
    ),
    LayerVerdict("<b>last</b>", "relu", (1, 4, 4, 4), Verdict("exact", 0.0)),
)
AUDIT = Audit("net.onnx", "onnxruntime", {}, LAYERS, Verdict("differs", 7.0))


def variables(block: str) -> dict[str, str]:
    return dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", block))


def pages() -> dict[str, dict[str, str]]:
    """The colours that the style sheet itself states."""
    light, dark, paper = re.findall(r":root \{([^}]*)\}", STYLE)
    return {"light": variables(light), "dark": variables(dark), "print": variables(paper)}


@pytest.mark.parametrize("which", ["light", "dark", "print"])
@pytest.mark.parametrize("text", ["ink", "soft", "good", "bad", "open", "link"])
def test_every_text_can_be_read(which: str, text: str) -> None:
    colours = pages()[which]
    assert contrast(colours[text], colours["paper"]) >= 4.5
    assert contrast(colours[text], colours["shade"]) >= 4.5  # of code, and of the row that was linked to


def test_paper_is_white_whatever_the_screen_is() -> None:
    assert pages()["print"] == pages()["light"]
    assert STYLE.index("prefers-color-scheme: dark") < STYLE.rindex("@media print")  # the last one wins


def test_no_other_colour_is_used() -> None:
    """A colour in the page itself would not follow the reader's choice."""
    written = audit_page(AUDIT).replace(STYLE, "")
    assert not re.findall(r"#[0-9a-f]{3,8}\b(?![^<]*</code>)", written)
    assert "opacity" not in STYLE


def test_the_failing_row_is_a_click_away() -> None:
    text = audit_page(AUDIT)
    (target,) = re.findall(r'does not explain: <a href="#([\w-]+)">', text)
    row = re.search(rf'<tr id="{target}">(.*?)</tr>', text)[1]
    assert "differs" in row
    assert LONG in row  # in the title, whole
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]+)"', text)) <= set(ids)


def test_a_summary_and_a_legend_stand_above_the_table() -> None:
    text = audit_page(AUDIT)
    plain = re.sub(r"<[^>]*>", "", text)
    assert "1 exact, 1 rounding, 1 differs. stem used the most of its allowance: 0.25 of 1." in plain
    assert plain.index(MEANINGS["differs"]) < plain.index("worst element")
    assert MEANINGS["refuses"] not in plain


def test_every_verdict_has_a_meaning_and_a_tone() -> None:
    assert set(SEVERITY) <= set(MEANINGS)
    assert {tone_of(k) for k in ("exact", "holds", "proven")} == {"good"}
    assert legend(MEANINGS, []) == ""


def test_long_names_keep_both_ends() -> None:
    text = named(LONG)
    shown = re.search(r">([^<]*)</code>", text)[1]
    assert len(shown) <= MAX_NAME_CHARS
    assert (LONG.startswith(shown[:8]), LONG.endswith(shown[-8:])) == (True, True)
    assert f'title="{LONG}"' in text
    assert named("conv1") == "<code>conv1</code>"


class Tables(HTMLParser):
    """Tables that stand in no box of their own that scrolls."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[bool] = []
        self.loose = 0
        self.count = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "div":
            self.open.append(("class", "wide") in attrs)
        if tag == "table":
            self.count += 1
            self.loose += not any(self.open)

    def handle_endtag(self, tag: str) -> None:
        if tag == "div":
            self.open.pop()


def test_tables_scroll_on_a_phone() -> None:
    tables = Tables()
    tables.feed(audit_page(replace(AUDIT, deployment={"layers": {"execution": "float32"}})))
    assert (tables.count, tables.loose) == (2, 0)
    planted = Tables()
    planted.feed(page("t", "ok", "", ["<table></table>"]))
    assert planted.loose == 1


def test_the_network_is_drawn_and_long_ones_are_folded() -> None:
    import specgrad as sg

    def net(w, x):
        with sg.scope("stem"):
            return sg.max_pool(sg.conv(w, None, x), (2,))

    graph = sg.trace(net, (1, 1, 2), (1, 5))
    names = dict.fromkeys(n.group or n.name for n in graph.nodes)
    layers = tuple(LayerVerdict(n, "conv", (1, 4), Verdict("differs", 2.0)) for n in names)
    short = audit_page(replace(AUDIT, layers=layers), graph)
    assert "<details open><summary>layers coloured" in short
    assert 'class="area bad"' in short
    long = audit_page(replace(AUDIT, layers=LAYERS * MAX_UNFOLDED_LAYERS), graph)
    assert "<details><summary>layers coloured" in long
    assert "layers coloured" not in audit_page(AUDIT)


def test_names_are_data() -> None:
    assert "<b>last" not in audit_page(AUDIT)
    assert '"onload' not in named('x"onload=alert(1) ' + "y" * 60)
