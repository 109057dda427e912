"""Classes of arithmetic (tf32, bfloat16, Winograd, ...), and the evidence that a result needs to be explained by one.

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

from .error_estimate import is_typical
from .judge import Verdict, judge_array, replace_nonfinite, worst
from .mutations import faulty_outputs
from .observation import Observation
from .rewritten_formulas import REPLACED, TEXTS, rewritings
from .shared_unknowns import ONE_PASS

Evidence = Literal["factors", "results", "probe"]
MIN_REVEALING_CELLS = 4  # cells in which float32 would have shown more digits, of sums whose ball is wide
OPERAND_ROUNDINGS: tuple[tuple[Toward, Toward], ...] = (
    ("nearest", "nearest"), ("zero", "zero"), ("zero", "nearest"), ("nearest", "zero")
)  # fmt: skip


@dataclass(frozen=True)
class ArithmeticClass:
    """One class of executions, such as TF32 operands.

    name       as in --accept
    text       as in a sentence
    evidence   what is asked for beside the ball: known factors, half numbers in every cell, or a probe
    ways       how an execution may go, each with a few words
    whole      the arithmetic of a model all of whose layers may be computed so; None: there is no such radius
    form       the 16-bit format whose numbers results must be, if any
    """

    name: str
    text: str
    evidence: Evidence
    ways: tuple[tuple[str, ArithmeticVariant], ...]
    whole: Arithmetic | None = None
    form: Format | None = None


def _rounded_operands_class(name: str, text: str) -> ArithmeticClass:
    """Return the class whose factors are rounded to the format `name`, which `text` calls by its usual name.

    It is accepted as "tf32", or as `name`-operands.
    """
    words = {"nearest": "rounded", "zero": "cut off"}
    ways = tuple(
        (f"data {words[x]}, weights {words[w]}", ReducedOperands(OPERANDS[name], x, w)) for x, w in OPERAND_ROUNDINGS
    )
    accept = "tf32" if name == "tf32" else f"{name}-operands"
    return ArithmeticClass(accept, f"{text} operands", "factors", ways, Arithmetic(operands=name, rounding="any"))


def _half_results_class(name: str) -> ArithmeticClass:
    """Return the class whose results are stored in the half format `name`, with float32 sums."""
    form = FORMATS[name]
    ways = (("rounded", ReducedResults(form, "nearest")), ("cut off", ReducedResults(form, "zero")))
    whole = Arithmetic(name, accumulate="float32", rounding="any", flush=True)
    return ArithmeticClass(name, f"{name} results", "results", ways, whole, form)


def _half_sums_class(name: str) -> ArithmeticClass:
    """Return the class whose sums are in the half format `name`."""
    form = FORMATS[name]
    ways = (("factors rounded", ReducedSums(form, True)), ("factors as they are", ReducedSums(form, False)))
    return ArithmeticClass(
        f"{name}-sums", f"{name} sums", "probe", ways, Arithmetic(name, rounding="any", flush=True), form
    )


def _winograd_class(tiles: str) -> ArithmeticClass:
    """Return the class of Winograd convolutions with tiles of one size."""
    ways = tuple((t.name, Winograd(t)) for t in TILES[tiles])
    return ArithmeticClass(f"winograd-f{TILES[tiles][0].outputs}", f"Winograd {tiles}", "probe", ways)


FLOAT32 = "float32"
CLASSES = (
    _rounded_operands_class("tf32", "TF32"),
    _rounded_operands_class("float16", "float16"),
    _rounded_operands_class("bfloat16", "bfloat16"),
    _half_results_class("float16"),
    _half_results_class("bfloat16"),
    *map(_winograd_class, TILES),
    _half_sums_class("float16"),
    _half_sums_class("bfloat16"),
)
BY_NAME = {c.name: c for c in CLASSES}


def reclassify(
    verdict: Verdict,
    observed: Observation,
    arithmetic: Arithmetic,
    probe: Probe | None = None,
    accept: Collection[str] | None = None,
) -> Verdict:
    """Return the verdict "differs" as "other arithmetic" if a class explains it, as "rounding" if that is accepted.

    `observed` is what was computed, from which inputs; `probe` can ask the runtime again.

    accept   names of classes; None: nothing can be accepted here
    """
    if verdict.kind != "differs" or verdict.fault not in ("value", "infinity", "nan"):
        return verdict
    explanation = explain(observed, arithmetic, probe)
    if explanation is None:
        return verdict
    if accept is not None and explanation.name in accept:
        return replace(
            explanation.verdict, kind="rounding", arithmetic=explanation.name, detail=f"{explanation.text}, accepted"
        )
    text = f"explained by {explanation.text}, not by {FLOAT32}"
    text += f"; --accept {explanation.name} would allow it" if accept is not None else ""
    return replace(verdict, kind="other arithmetic", arithmetic=explanation.name, detail=text)


def reclassify_as_rewritten(
    verdict: Verdict, observed: Observation, arithmetic: Arithmetic, accept: Collection[str]
) -> Verdict:
    """Return "differs" as "other arithmetic" if a rewriting explains it, as "rounding" if accepted.

    The ball is the radius of the rewritten graph (specgrad.check.verdicts.rewritten_formulas), in the same arithmetic.
    Where the function is kept it must hold the exact value: what computes something else explains nothing. `observed`
    is what was computed, from which inputs; `accept` names classes that count as rounding.
    """
    if any(n.kind != "real" for n in observed.graph.nodes):
        return verdict
    for name, words, graph in rewritings(observed.graph):
        balls = _balls_under(observed, graph, observed.inputs, arithmetic)
        other = worst([judge_array(n, a, b) for n, a, b in zip(observed.names, observed.outputs, balls, strict=True)])
        same = name == REPLACED or all(b.contains(v).all() for v, b in zip(observed.values(), balls, strict=True))
        if other.kind not in ("exact", "rounding") or not same:
            continue
        if name in accept:
            return replace(other, kind="rounding", arithmetic=name, detail=f"{TEXTS[name]} ({words}), accepted")
        text = f"explained by {TEXTS[name]} ({words}), which {FLOAT32} in any order does not include"
        text += f"; --accept {name} would allow it"
        return replace(verdict, kind="other arithmetic", arithmetic=name, detail=text)
    return verdict


def accepted_classes(names: Sequence[str]) -> frozenset[str]:
    """Return the names that a user accepts, "any" expanded to all arithmetics; raise ParameterError for others.

    Numbers that were replaced make another function: that is accepted by its own name alone.

    >>> sorted(accepted_classes(["tf32"]))
    ['tf32']
    """
    known = (FLOAT32, *BY_NAME, *TEXTS, ONE_PASS)
    for name in names:
        if name not in (*known, "any"):
            raise ParameterError("audit", f"accept must be among {', '.join(known)} or any; got {name!r}", rule="P5")
    return frozenset([*names, *(n for n in known if n != REPLACED)] if "any" in names else names) - {"any"}


def class_of(verdict: Verdict, declared: str = FLOAT32) -> str | None:
    """Return the class that explains a verdict, `declared` if it is the model's own; None if none does."""
    return verdict.arithmetic or (declared if verdict.kind in ("exact", "rounding") else None)


WIDENING_CLASSES = (
    ("tf32", "float16-operands", "float16", "float16-sums"),
    ("tf32", "bfloat16-operands", "bfloat16", "bfloat16-sums"),
)
"""Through a whole model each allows what the one before allows: a stored half number is a rounded factor of every
reader, and half sums may be wider ones."""


def model_arithmetic(float32: Arithmetic, names: Collection[str]) -> Arithmetic | None:
    """Return the arithmetic of a model with layers of the classes `names` and of `float32`; None if none is known.

    >>> model_arithmetic(Arithmetic(), ["tf32", "bfloat16"]).dtype, model_arithmetic(Arithmetic(), ["winograd-f4"])
    ('bfloat16', None)
    """
    if not names:
        return float32
    chain = next((c for c in WIDENING_CLASSES if set(names) <= set(c)), ())
    widest = next((BY_NAME[n].whole for n in reversed(chain) if n in names), None)
    return None if widest is None else replace(widest, execution=float32.execution, ulps=float32.ulps)


@dataclass(frozen=True)
class ArithmeticExplanation:
    """The narrowest class that explains a result: its name, its text with the evidence, the verdict in it."""

    name: str
    text: str
    verdict: Verdict


Probe = Callable[[ArithmeticVariant], str | None]
"""Asks the runtime again: "" if the class has shown itself, a reason if it has not, None if nobody can be asked."""


def explain(observed: Observation, arithmetic: Arithmetic, probe: Probe | None = None) -> ArithmeticExplanation | None:
    """Return the narrowest class that explains the results in `observed`, which float32 does not.

    None if no class does. `arithmetic` is that of float32; `probe` can ask the runtime for variations.
    """
    for c in CLASSES:
        for words, way in c.ways if _is_possible(c, observed, arithmetic) else ():
            verdict = _judge_in_class(c, way, observed, arithmetic)
            if verdict is None:
                continue
            rests = _evidence_for(c, way, observed, arithmetic, probe)
            if rests is not None:
                shown = "; ".join(w for w in (words, rests) if w)
                return ArithmeticExplanation(c.name, f"{c.text} ({shown})" if shown else c.text, verdict)
    return None


def _is_possible(c: ArithmeticClass, observed: Observation, arithmetic: Arithmetic) -> bool:
    """Return whether class c may explain the results in `observed`: a cheap test before its balls are computed.

    `arithmetic` is that of float32, which does not explain them.
    """
    if c.evidence == "results":
        return c.form is not None and _are_half_numbers(c.form, observed)
    if c.evidence == "factors":
        return observed.multiplies and _lies_in_class_radius(c.whole, observed, arithmetic)
    return observed.tiled if c.name.startswith("winograd") else observed.sums


def _lies_in_class_radius(wide: Arithmetic | None, observed: Observation, arithmetic: Arithmetic) -> bool:
    """Return whether the results in `observed` lie in the radius of `wide`, which holds all variants; True for None.

    `arithmetic` says the execution and the errors of functions.
    """
    if wide is None:
        return True
    wide = replace(wide, execution=arithmetic.execution, ulps=arithmetic.ulps)
    return all(
        b.contains(a).all()
        for a, b in zip(observed.outputs, _balls_under(observed, observed.graph, observed.inputs, wide), strict=True)
    )


def _are_half_numbers(form: Format, observed: Observation, enough: int = 1) -> bool:
    """Return whether every cell of the observed results is a number of the format, where at least `enough` exact values
    are not.

    One is enough where it must be the number that the exact value is rounded to: others have 13 digits to be wrong.
    """
    if not all(a.dtype.kind == "f" and form.holds(a.astype(np.float64)).all() for a in observed.outputs):
        return False
    return int(sum(np.count_nonzero(~form.holds(v.astype(np.float64))) for v in observed.values())) >= enough


def _shows_half_precision(form: Format, observed: Observation) -> bool:
    """Return whether the results in `observed` are numbers of the half format, and not all of them bfloat16."""
    short = FORMATS["bfloat16"]
    is_shorter = form is not short and all(short.holds(a.astype(np.float64)).all() for a in observed.outputs)
    return _are_half_numbers(form, observed, MIN_REVEALING_CELLS) and not is_shorter


def class_balls(way: ArithmeticVariant, observed: Observation, arithmetic: Arithmetic) -> Iterator[list[Ball]]:
    """Yield the balls of what was observed by the variant `way` of a class: with constants as they are, and for half
    results with rounded ones too.

    `arithmetic` is that of float32, which the variant changes.
    """
    graphs = [(observed.graph, observed.inputs)]
    if isinstance(way, ReducedResults):
        graphs.append(_round_operands(observed, way))
    for graph, given in graphs:
        yield _balls_under(observed, graph, given, arithmetic, way)


def _balls_under(
    observed: Observation,
    graph: Graph,
    given: Sequence[Array],
    arithmetic: Arithmetic,
    way: ArithmeticVariant | None = None,
) -> list[Ball]:
    """Return one ball per result of the graph at the inputs `given`, under `way` if there is one.

    Non-finite values are those of the specification, as in `judge.expected_balls`. `observed` says how many results,
    and what computes radii. UnsupportedError where an operator has no radius.
    """
    finite = [replace_nonfinite(a) for a in given]
    per_output = leaves(radius(graph, *finite, arithmetic=arithmetic, backend=observed.backend, way=way).outputs)[
        -len(observed.outputs) :
    ]
    if all(np.isfinite(a).all() for a in given):
        return list(per_output)
    known = [np.isfinite(v) for v in observed.values()]
    pairs = zip(per_output, observed.values(), known, strict=True)
    return [Ball(np.where(k, b.value, v), np.where(k, b.radius, 0.0)) for b, v, k in pairs]


def _round_operands(observed: Observation, way: ReducedResults) -> tuple[Graph, list[Array]]:
    """Return the observed graph with its constants, and its inputs, rounded as `way` says: to its format, to nearest or
    toward zero.
    """
    form, toward = way.form, way.toward
    constants = {
        p: round_to_format(np.asarray(v, np.float64), form, toward) if observed.graph.nodes[p].kind == "real" else v
        for p, v in observed.graph.constants.items()
    }
    return replace(observed.graph, constants=constants), [round_to_format(a, form, toward) for a in observed.inputs]


def _judge_in_class(
    c: ArithmeticClass, way: ArithmeticVariant, observed: Observation, arithmetic: Arithmetic
) -> Verdict | None:
    """Return the verdict of the first balls of class c, variant `way`, that hold all observed results; None if none do,
    or a radius is infinite.

    Factors that are short already are float32's, and what float32 does not explain they do not.
    """
    for balls in class_balls(way, observed, arithmetic):
        verdict = worst([judge_array(n, a, b) for n, a, b in zip(observed.names, observed.outputs, balls, strict=True)])
        if verdict.kind in ("exact", "rounding"):
            return None if c.evidence == "factors" and _same_values(balls, observed, arithmetic) else verdict
    return None


def _same_values(balls: Sequence[Ball], observed: Observation, arithmetic: Arithmetic) -> bool:
    """Return whether `balls`, one per output, have the centres that `arithmetic` gives for the observed inputs."""
    plain = _balls_under(observed, observed.graph, observed.inputs, arithmetic)
    return all(np.array_equal(a.value, b.value, equal_nan=True) for a, b in zip(balls, plain, strict=True))


def _evidence_for(
    c: ArithmeticClass,
    way: ArithmeticVariant,
    observed: Observation,
    arithmetic: Arithmetic,
    probe: Probe | None,
) -> str | None:
    """Return in words what explaining `observed` by class c, variant `way`, rests on beside the ball of `arithmetic`:
    "" if the ball suffices for this class; None if there is not enough.

    `probe` asks the runtime again about a variant: "" if it has shown itself, a reason if not, None if nobody can be
    asked.
    """
    if c.evidence != "probe":
        return ""
    shown = None if probe is None else probe(way)
    if shown is not None:
        return "probed" if shown == "" else None
    if len(observed.outputs) > 1 or (c.form is not None and not _shows_half_precision(c.form, observed)):
        return None
    (ball,) = next(class_balls(way, observed, arithmetic))
    if not _is_typical_in(c, way, observed, observed.values()[0]):
        return None
    faults = (
        value
        for _, (value,) in faulty_outputs(observed)
        if Ball(value, ball.radius).contains(observed.outputs[0]).all()
    )
    return None if any(_is_typical_in(c, way, observed, v) for v in faults) else "bound only; could not be probed"


def _is_typical_in(c: ArithmeticClass, way: ArithmeticVariant, observed: Observation, exact: Array) -> bool:
    """Return whether the errors of the observed result against `exact` have the size that is typical of class c,
    variant `way`.
    """
    return is_typical(observed, exact, way if isinstance(way, Winograd) else None, c.form)
