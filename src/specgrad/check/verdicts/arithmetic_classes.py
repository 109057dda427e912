"""The classes of arithmetic by name, and what an answer has to show to be explained by one.

They stand in the order of what each still allows once its own evidence is asked for, the narrowest first. Where the
factors of a product are known their shorter form is known too, so that TF32, float16 and bfloat16 operands allow no
more than float32 does; half results must be half numbers in every cell. Winograd's tiles and half sums allow more: a
fault could hide there. They explain only what was probed (on integers, where a fault shows as a whole number); or
errors of the usual size, in a ball that a lost bias or a moved window would leave.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from specgrad.errors import ParameterError
from specgrad.graph.graph import Graph
from specgrad.graph.ir.tree import leaves
from specgrad.rounding import FORMATS, Arithmetic, Ball, radius
from specgrad.rounding.arithmetic import OPERANDS, Format
from specgrad.rounding.arithmetic_variants import (
    ReducedOperands,
    ReducedResults,
    ReducedSums,
    Toward,
    Winograd,
    round_to_format,
)
from specgrad.rounding.context import ArithmeticVariant
from specgrad.rounding.winograd import TILES
from specgrad.scalar import Array

from .error_estimate import is_usual
from .judge import Verdict, compare, stand_ins, worst
from .mutations import usual_faults
from .observation import Observation
from .rewritten_formulas import REPLACED, TEXTS, rewritten

Evidence = Literal["factors", "results", "probe"]
ENOUGH = 4  # cells in which float32 would have shown more digits, of sums whose ball is wide
BOTH: tuple[tuple[Toward, Toward], ...] = (
    ("nearest", "nearest"), ("zero", "zero"), ("zero", "nearest"), ("nearest", "zero")
)  # fmt: skip


@dataclass(frozen=True)
class ArithmeticClass:
    """One class of executions.

    name       as in --accept
    text       as in a sentence
    evidence   what is asked for beside the ball: known factors, half numbers in every cell, or a probe
    ways       how an execution may go, each with a few words
    whole      the arithmetic of a model all of whose layers may be computed so; None: there is no such radius
    """

    name: str
    text: str
    evidence: Evidence
    ways: tuple[tuple[str, ArithmeticVariant], ...]
    whole: Arithmetic | None = None
    form: Format | None = None


def _operands(name: str, text: str) -> ArithmeticClass:
    words = {"nearest": "rounded", "zero": "cut off"}
    ways = tuple((f"data {words[x]}, weights {words[w]}", ReducedOperands(OPERANDS[name], x, w)) for x, w in BOTH)
    accept = "tf32" if name == "tf32" else f"{name}-operands"
    return ArithmeticClass(accept, f"{text} operands", "factors", ways, Arithmetic(operands=name, rounding="any"))


def _results(name: str) -> ArithmeticClass:
    form = FORMATS[name]
    ways = (("rounded", ReducedResults(form, "nearest")), ("cut off", ReducedResults(form, "zero")))
    whole = Arithmetic(name, accumulate="float32", rounding="any", flush=True)
    return ArithmeticClass(name, f"{name} results", "results", ways, whole, form)


def _sums(name: str) -> ArithmeticClass:
    form = FORMATS[name]
    ways = (("factors rounded", ReducedSums(form, True)), ("factors as they are", ReducedSums(form, False)))
    return ArithmeticClass(
        f"{name}-sums", f"{name} sums", "probe", ways, Arithmetic(name, rounding="any", flush=True), form
    )


def _winograd(tiles: str) -> ArithmeticClass:
    ways = tuple((t.name, Winograd(t)) for t in TILES[tiles])
    return ArithmeticClass(f"winograd-f{TILES[tiles][0].outputs}", f"Winograd {tiles}", "probe", ways)


FLOAT32 = "float32"
CLASSES = (
    _operands("tf32", "TF32"),
    _operands("float16", "float16"),
    _operands("bfloat16", "bfloat16"),
    _results("float16"),
    _results("bfloat16"),
    *map(_winograd, TILES),
    _sums("float16"),
    _sums("bfloat16"),
)
BY_NAME = {c.name: c for c in CLASSES}


def renamed(
    verdict: Verdict,
    seen: Observation,
    arithmetic: Arithmetic,
    probe: Probe | None = None,
    accept: Collection[str] | None = None,
) -> Verdict:
    """The verdict "differs" as "other arithmetic" where a class explains it, as "rounding" where that is accepted.

    accept   names of classes; None: nothing can be accepted here
    """
    if verdict.kind != "differs" or verdict.fault not in ("value", "infinity", "nan"):
        return verdict
    explanation = explain(seen, arithmetic, probe)
    if explanation is None:
        return verdict
    if accept is not None and explanation.name in accept:
        return replace(
            explanation.verdict, kind="rounding", arithmetic=explanation.name, detail=f"{explanation.text}, accepted"
        )
    text = f"explained by {explanation.text}, not by {FLOAT32}"
    text += f"; --accept {explanation.name} would allow it" if accept is not None else ""
    return replace(verdict, kind="other arithmetic", arithmetic=explanation.name, detail=text)


def renamed_as_rewritten(
    verdict: Verdict, seen: Observation, arithmetic: Arithmetic, accept: Collection[str]
) -> Verdict:
    """The verdict "differs" as "other arithmetic" where a rewriting explains it; as "rounding" where that is accepted.

    The ball is the radius of the rewritten graph (specgrad.check.verdicts.rewritten_formulas), in the same
    arithmetic. Where the function is kept it must hold the exact value: what computes something else explains nothing.
    """
    if any(n.kind != "real" for n in seen.graph.nodes):
        return verdict
    for name, words, graph in rewritten(seen.graph):
        balls = _balls(seen, graph, seen.given, arithmetic)
        other = worst([compare(n, a, b) for n, a, b in zip(seen.names, seen.got, balls, strict=True)])
        same = name == REPLACED or all(b.contains(v).all() for v, b in zip(seen.values(), balls, strict=True))
        if other.kind not in ("exact", "rounding") or not same:
            continue
        if name in accept:
            return replace(other, kind="rounding", arithmetic=name, detail=f"{TEXTS[name]} ({words}), accepted")
        text = f"explained by {TEXTS[name]} ({words}), which {FLOAT32} in any order does not include"
        text += f"; --accept {name} would allow it"
        return replace(verdict, kind="other arithmetic", arithmetic=name, detail=text)
    return verdict


def accepted(names: Sequence[str]) -> frozenset[str]:
    """The names of a user, "any" for all arithmetics; an error lists what there is.

    Numbers that were replaced make another function: that is accepted by its own name alone.

    >>> sorted(accepted(["tf32"]))
    ['tf32']
    """
    known = (FLOAT32, *BY_NAME, *TEXTS)
    for name in names:
        if name not in (*known, "any"):
            raise ParameterError("audit", f"accept must be among {', '.join(known)} or any; got {name!r}", rule="P5")
    return frozenset([*names, *(n for n in known if n != REPLACED)] if "any" in names else names) - {"any"}


def class_of(verdict: Verdict, declared: str = FLOAT32) -> str | None:
    """The class that explains a verdict, where the model says `declared`; None where none does."""
    return verdict.arithmetic or (declared if verdict.kind in ("exact", "rounding") else None)


WIDER = (
    ("tf32", "float16-operands", "float16", "float16-sums"),
    ("tf32", "bfloat16-operands", "bfloat16", "bfloat16-sums"),
)
"""Through a whole model each allows what the one before allows: a stored half number is a rounded factor of every
reader, and half sums may be wider ones."""


def whole_arithmetic(float32: Arithmetic, names: Collection[str]) -> Arithmetic | None:
    """The arithmetic of a model with layers of the named classes, and of float32; None where none is known.

    >>> whole_arithmetic(Arithmetic(), ["tf32", "bfloat16"]).dtype, whole_arithmetic(Arithmetic(), ["winograd-f4"])
    ('bfloat16', None)
    """
    if not names:
        return float32
    chain = next((c for c in WIDER if set(names) <= set(c)), ())
    widest = next((BY_NAME[n].whole for n in reversed(chain) if n in names), None)
    return None if widest is None else replace(widest, execution=float32.execution, ulps=float32.ulps)


@dataclass(frozen=True)
class ArithmeticExplanation:
    """The narrowest class that explains what was seen, how it went there, and what the explanation rests on."""

    name: str
    text: str
    verdict: Verdict


Probe = Callable[[ArithmeticVariant], str | None]
"""Asks the runtime again: "" if the class has shown itself, a reason if it has not, None if nobody can be asked."""


def explain(seen: Observation, arithmetic: Arithmetic, probe: Probe | None = None) -> ArithmeticExplanation | None:
    """The narrowest class that explains the results, which float32 does not; None where no class does."""
    for c in CLASSES:
        for words, way in c.ways if _is_possible(c, seen, arithmetic) else ():
            verdict = _judged(c, way, seen, arithmetic)
            if verdict is None:
                continue
            rests = _rests_on(c, way, seen, verdict, arithmetic, probe)
            if rests is not None:
                shown = "; ".join(w for w in (words, rests) if w)
                return ArithmeticExplanation(c.name, f"{c.text} ({shown})" if shown else c.text, verdict)
    return None


def _is_possible(c: ArithmeticClass, seen: Observation, arithmetic: Arithmetic) -> bool:
    """What can be said before a ball of the class is computed, or from one that holds all of its ways."""
    if c.evidence == "results":
        return c.form is not None and _are_half_numbers(c.form, seen)
    if c.evidence == "factors":
        return seen.multiplies and _is_near(c.whole, seen, arithmetic)
    return seen.tiled if c.name.startswith("winograd") else seen.sums


def _is_near(wide: Arithmetic | None, seen: Observation, arithmetic: Arithmetic) -> bool:
    if wide is None:
        return True
    wide = replace(wide, execution=arithmetic.execution, ulps=arithmetic.ulps)
    return all(b.contains(a).all() for a, b in zip(seen.got, _balls(seen, seen.graph, seen.given, wide), strict=True))


def _are_half_numbers(form: Format, seen: Observation, enough: int = 1) -> bool:
    """Every cell is a number of the format, and in enough of them float32 would not have been one.

    One is enough where it must be the number that the exact value is rounded to: others have 13 digits to be wrong.
    """
    if not all(a.dtype.kind == "f" and form.holds(a.astype(np.float64)).all() for a in seen.got):
        return False
    return int(sum(np.count_nonzero(~form.holds(v.astype(np.float64))) for v in seen.values())) >= enough


def _shows_digits(form: Format, seen: Observation) -> bool:
    """Half numbers, and not all of them of the shorter format."""
    short = FORMATS["bfloat16"]
    is_shorter = form is not short and all(short.holds(a.astype(np.float64)).all() for a in seen.got)
    return _are_half_numbers(form, seen, ENOUGH) and not is_shorter


def class_balls(way: ArithmeticVariant, seen: Observation, arithmetic: Arithmetic) -> Iterator[list[Ball]]:
    """The balls of the class; one list with constants as they are, and for half results one with rounded ones."""
    graphs = [(seen.graph, seen.given)]
    if isinstance(way, ReducedResults):
        graphs.append(_rounded(seen, way))
    for graph, given in graphs:
        yield _balls(seen, graph, given, arithmetic, way)


def _balls(
    seen: Observation,
    graph: Graph,
    given: Sequence[Array],
    arithmetic: Arithmetic,
    way: ArithmeticVariant | None = None,
) -> list[Ball]:
    """NaN and infinities take their value from the specification alone, as in `judge.balls`."""
    finite = [stand_ins(a) for a in given]
    per_output = leaves(radius(graph, *finite, arithmetic=arithmetic, backend=seen.backend, way=way).outputs)[
        -len(seen.got) :
    ]
    if all(np.isfinite(a).all() for a in given):
        return list(per_output)
    known = [np.isfinite(v) for v in seen.values()]
    pairs = zip(per_output, seen.values(), known, strict=True)
    return [Ball(np.where(k, b.value, v), np.where(k, b.radius, 0.0)) for b, v, k in pairs]


def _rounded(seen: Observation, way: ReducedResults) -> tuple[Graph, list[Array]]:
    """Constants and inputs as numbers of the format."""
    form, toward = way.form, way.toward
    constants = {
        p: round_to_format(np.asarray(v, np.float64), form, toward) if seen.graph.nodes[p].kind == "real" else v
        for p, v in seen.graph.constants.items()
    }
    return replace(seen.graph, constants=constants), [round_to_format(a, form, toward) for a in seen.given]


def _judged(c: ArithmeticClass, way: ArithmeticVariant, seen: Observation, arithmetic: Arithmetic) -> Verdict | None:
    """The verdict of the first balls that hold all results; None if none do, or a cell is open.

    Factors that are short already are float32's, and what float32 does not explain they do not.
    """
    for balls in class_balls(way, seen, arithmetic):
        verdict = worst([compare(n, a, b) for n, a, b in zip(seen.names, seen.got, balls, strict=True)])
        if verdict.kind in ("exact", "rounding"):
            return None if c.evidence == "factors" and _same_values(balls, seen, arithmetic) else verdict
    return None


def _same_values(balls: Sequence[Ball], seen: Observation, arithmetic: Arithmetic) -> bool:
    plain = _balls(seen, seen.graph, seen.given, arithmetic)
    return all(np.array_equal(a.value, b.value, equal_nan=True) for a, b in zip(balls, plain, strict=True))


def _rests_on(
    c: ArithmeticClass,
    way: ArithmeticVariant,
    seen: Observation,
    verdict: Verdict,
    arithmetic: Arithmetic,
    probe: Probe | None,
) -> str | None:
    """What the explanation rests on beside the ball, in words; None where that is not enough."""
    if c.evidence != "probe":
        return ""
    shown = None if probe is None else probe(way)
    if shown is not None:
        return "probed" if shown == "" else None
    if len(seen.got) > 1 or (c.form is not None and not _shows_digits(c.form, seen)):
        return None
    (ball,) = next(class_balls(way, seen, arithmetic))
    if not _is_usual_in(c, way, seen, seen.values()[0]):
        return None
    faults = (value for _, (value,) in usual_faults(seen) if Ball(value, ball.radius).contains(seen.got[0]).all())
    return None if any(_is_usual_in(c, way, seen, v) for v in faults) else "bound only; could not be probed"


def _is_usual_in(c: ArithmeticClass, way: ArithmeticVariant, seen: Observation, exact: Array) -> bool:
    return is_usual(seen, exact, way if isinstance(way, Winograd) else None, c.form)
