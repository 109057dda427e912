"""Run a kernel on one case and judge what it returns: shapes, types, numbers, and what it does to its inputs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from specgrad.errors import ParameterError
from specgrad.graph.graph import Graph
from specgrad.graph.ir.tree import leaves
from specgrad.interop.model import array_of
from specgrad.rounding import Arithmetic, Ball
from specgrad.scalar import Array

from ..conform.cropped_reference import is_judged_whole
from ..conform.sample_tally import SampleTally
from ..conform.sampled import SampledReference
from ..runtimes import NotOffered
from ..verdicts.arithmetic_classes import reclassify
from ..verdicts.defined_values import as_far_as_defined, defines_nan
from ..verdicts.judge import SEVERITY, Verdict, allowed_balls, judge_array, mismatches, worst
from ..verdicts.observation import Observation
from ..verdicts.shared_unknowns import judge_one_pass, judge_shared
from .arrays import giver, hand_out, to_numpy, type_name
from .case import KernelCase
from .reference import Reference

Kernel = Callable[..., Any]
MANY_MULTIPLY_ADDS = 2**24  # beyond, PyTorch computes the reference where it is installed


@dataclass(frozen=True, eq=False)
class JudgedResult:
    """One result of a kernel beside what it must be.

    name      "y", or "y0", "y1" of several
    got       what the kernel returned, as numbers
    ball      the exact values, and how far a correct result may be from each
    verdict   the worst cell's
    sample    of a large result, what is found in a sample; `got` and `ball` are of the selection with the worst cell
    """

    name: str
    got: Array
    ball: Ball
    verdict: Verdict
    sample: SampleTally | None = None

    @classmethod
    def of_sample(cls, tally: SampleTally) -> JudgedResult:
        """Return the result of which a sample was judged."""
        part = tally.part
        got, ball = (part.got, part.ball) if part else (np.zeros(0), Ball(np.zeros(0), np.zeros(0)))
        return cls(tally.name, got, ball, tally.verdict, tally)

    @property
    def wrong(self) -> Array:
        """Return the mask of cells that no rounding explains."""
        return mismatches(self.got, self.ball)

    def place(self, index: Sequence[Any]) -> tuple[int, ...]:
        """Return the place in the whole result of the cell of `got` at an index."""
        if self.sample is None or self.sample.part is None:
            return tuple(int(i) for i in index)
        return tuple(int(p[i]) for p, i in zip(self.sample.part.selection.positions, index, strict=True))


@dataclass(frozen=True, eq=False)
class Examination:
    """What became of one case.

    case     the question
    verdict  the worst over all results, or how the kernel failed
    results  the results that could be compared
    error    what the kernel raised, if it did
    graph    the reference at these shapes
    """

    case: KernelCase
    verdict: Verdict
    results: Sequence[JudgedResult] = ()
    error: Exception | None = None
    graph: Graph | None = field(default=None, repr=False)

    @property
    def samples(self) -> list[SampleTally]:
        """Return what is found in samples of large results."""
        return [r.sample for r in self.results if r.sample is not None]

    @property
    def passes(self) -> bool:
        """Return whether the answer is right, as far as it can be judged."""
        return self.verdict.kind in ("exact", "rounding", "cannot tell")

    def same_fault(self, other: Examination) -> bool:
        """Return whether the other case fails in the same way: shrinking may replace one by the other."""
        return self.verdict.same_sort(other.verdict) and type(self.error) is type(other.error)


class ReferenceExaminer:
    """Runs a kernel in this process and holds its answers against a reference; `examine` is one case.

    kernel      called with the inputs in order; or the arrays that it gave elsewhere, for one case
    reference   what it must compute
    arrays      whose arrays the kernel takes: "numpy", "torch" or "jax"
    arithmetic  the formats and sums that it may use
    check_dtype whether results must be of the format of `arithmetic`
    cells, seed how many cells of a large result are drawn to be judged (None: all), and by which seed
    """

    def __init__(
        self,
        kernel: Any,
        reference: Reference,
        arrays: str,
        arithmetic: Arithmetic,
        *,
        check_dtype: bool = True,
        cells: int | None = None,
        seed: int = 0,
    ) -> None:
        self.kernel, self.reference, self.arithmetic = kernel, reference, arithmetic
        self.arrays, self.give, self.check_dtype = arrays, giver(arrays), check_dtype
        self.cells, self.seed = cells, seed

    @property
    def is_live(self) -> bool:
        """Whether the kernel can be asked; recorded results cannot."""
        return callable(self.kernel)

    def of_gradient(self, gradient: Kernel) -> ReferenceExaminer:
        """Return what asks the function `gradient` for the cotangents of the inputs."""
        return self._with(kernel=gradient, reference=self.reference.of_gradient())

    def _with(self, **changed: Any) -> ReferenceExaminer:
        """Return an examiner that differs in some parameters."""
        names = ("kernel", "reference", "arrays", "arithmetic", "check_dtype", "cells", "seed")
        return ReferenceExaminer(**{**{name: getattr(self, name) for name in names}, **changed})

    def is_defined(self, case: KernelCase) -> bool:
        """Return whether the reference says what becomes of the NaN that the case holds, if any."""
        return not case.holds(np.isnan) or defines_nan(self.graph(case))

    def graph(self, case: KernelCase) -> Graph:
        """Return the reference at the shapes of a case."""
        return self.reference.graph(list(case.arrays.values()))

    def examine(self, case: KernelCase) -> Examination:
        """Return what the kernel makes of a case, judged: its verdict, with results, the graph, and the error if it
        raised one.
        """
        graph = self.graph(case)
        asked = case.arrays.items() if self.is_live else ()
        given = [hand_out(a, case.layout, self.give, case.formats[name]) for name, a in asked]
        try:
            views = [g.view for g in given]
            returned = self._run([*views[-1:], *views[:-1]] if case.gradient else views)
            named = self._named(returned, graph, case)
        except (NotImplementedError, NotOffered) as error:
            return Examination(case, Verdict("refuses", detail=str(error)), error=error, graph=graph)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            return Examination(case, Verdict("crashes", detail=reason), error=error, graph=graph)
        if isinstance(named, Verdict):
            return Examination(case, named, graph=graph)
        results = self._judged(named, graph, case)
        faults = [_written_verdict(n) for n, g in zip(case.arrays, given, strict=False) if g.is_changed]
        return Examination(case, worst([*faults, *(r.verdict for r in results)]), results, graph=graph)

    def _run(self, arrays: Sequence[Any]) -> Any:
        """Return what the kernel returns for these arrays; the recorded arrays where it is no function."""
        if not self.is_live:
            return self.kernel
        with np.errstate(all="ignore"):  # some cases hold NaN and infinities on purpose
            return self.kernel(*arrays)

    def _named(self, returned: Any, graph: Graph, case: KernelCase) -> list[tuple[str, Any]] | Verdict:
        """Return what the kernel `returned` as (name, numbers) per result of the graph; large ones as they are.

        The verdict on results that are none, too few, or of another type.
        """
        wanted = _outputs(graph, case.gradient)
        parts = leaves(returned) if _are_several(returned) else [returned]
        if len(parts) != len(wanted):
            text = f"{len(parts)} results, must be {len(wanted)}"
            return Verdict("differs", np.inf, "shape", detail=text)
        names = [f"gradient of {n}" for n in list(case.arrays)[:-1]] if case.gradient else _result_names(len(wanted))
        answer = []
        for name, part, position in zip(names, parts, wanted, strict=True):
            if self.check_dtype and (text := self._type_fault(name, part, graph.nodes[position].kind)):
                return Verdict("differs", np.inf, "type", name, detail=text)
            try:
                large = self._is_sampled(graph) and type_name(part)  # read where it lies
                answer.append((name, part if large else array_of(to_numpy(part), name, "the kernel").copy()))
            except ParameterError as error:
                return Verdict("differs", np.inf, "type", name, detail=str(error))
        return answer

    def _type_fault(self, name: str, part: Any, kind: str) -> str:
        """Return in words what is wrong with the type of the result `part`, called `name`.

        "" if nothing is, or it is a number of Python's. `kind` is "index" or "real". Positions are integers of any
        size. A result of truth values may stand for 0 and 1.
        """
        got = type_name(part)
        if not got or got == "bool":
            return ""
        if kind == "index":
            return "" if "int" in got else f"{name} is of {got}, must be of integers"
        must = self.arithmetic.dtype
        return "" if got == must else f"{name} is of {got}, must be of {must} (check_dtype=False lets it pass)"

    def _is_sampled(self, graph: Graph) -> bool:
        """Return whether the graph's results are so large that a sample of their cells is judged."""
        return self.cells is not None and not is_judged_whole(graph)

    def _judged(self, named: Sequence[tuple[str, Any]], graph: Graph, case: KernelCase) -> list[JudgedResult]:
        """Return the results `named`, each beside its ball, with its verdict."""
        if self._is_sampled(graph):
            reference = SampledReference(graph, self.arithmetic, self._backend(graph), self.reference.formats(graph))
            tallies = reference.tallies(list(case.arrays.values()), dict(named), self.cells, self.seed)
            return list(map(JudgedResult.of_sample, tallies))
        inputs, formats = case.numbers(graph), self.reference.formats(graph)
        with np.errstate(all="ignore"):
            balls = allowed_balls(graph, inputs, self.arithmetic, self._backend(graph), formats)
        balls = [as_far_as_defined(ball, graph, list(case.arrays.values())) for ball in balls[-len(named) :]]
        pairs = zip(named, balls, strict=True)
        judged = [JudgedResult(name, got, ball, judge_array(name, got, ball)) for (name, got), ball in pairs]
        if len(judged) != 1 or formats:
            return judged
        (one,) = judged
        verdict, _ = judge_shared(one.verdict, graph, inputs, one.got, one.ball, self.arithmetic)
        return [replace(one, verdict=verdict)]

    def _backend(self, graph: Graph) -> str:
        """Return what computes the reference: the specification, or PyTorch for much work where it is loaded."""
        shapes = [n.shape for n in graph.nodes]
        work = sum(
            n.op.multiply_adds(*(shapes[a] for a in n.operands()), **n.params) for n in graph.nodes if n.op.kernel
        )
        return "torch" if "torch" in sys.modules and work > MANY_MULTIPLY_ADDS else "numpy"

    def explained(self, answer: Examination) -> Verdict:
        """Return the verdict on a failed case, as "other arithmetic" where one that we know explains the results."""
        if answer.graph is None or not answer.results or answer.verdict.fault not in ("value", "infinity", "nan"):
            return answer.verdict
        if any(s.part is not None and s.part.graph is None for s in answer.samples):  # too large to be recomputed
            return answer.verdict
        if self.arithmetic.dtype == "float32":
            observed = self._observed(answer, answer.graph)
            verdict, outputs = reclassify(answer.verdict, observed, self.arithmetic), observed.outputs
            inputs = observed.inputs
            one_pass = len(outputs) == 1 and judge_one_pass(verdict, observed.graph, inputs, outputs[0], accepted=False)
            return one_pass or verdict
        return self._explained_by_sums(answer)

    def _observed(self, answer: Examination, graph: Graph) -> Observation:
        """Return what was computed; of a large result the selection with the worst cell."""
        worst_one = next(r for r in answer.results if r.verdict.kind == "differs")
        part = None if worst_one.sample is None else worst_one.sample.part
        if part is not None and part.graph is not None:
            return Observation(part.graph, part.arrays, [part.got], [worst_one.name], self._backend(part.graph))
        names, outputs = [r.name for r in answer.results], [r.got for r in answer.results]
        return Observation(graph, answer.case.numbers(graph), outputs, names, self._backend(graph))

    def _explained_by_sums(self, answer: Examination) -> Verdict:
        """Return the verdict as "other arithmetic" if sums in the format itself, not in a wider one, explain it."""
        if self.arithmetic.accumulate is None or answer.graph is None:
            return answer.verdict
        narrow, observed = replace(self.arithmetic, accumulate=None), self._observed(answer, answer.graph)
        formats = self.reference.formats(answer.graph)
        balls = allowed_balls(observed.graph, list(observed.inputs), narrow, observed.backend, formats)
        balls = [
            as_far_as_defined(ball, observed.graph, list(observed.inputs)) for ball in balls[-len(observed.outputs) :]
        ]
        judged = map(judge_array, observed.names, observed.outputs, balls)
        if SEVERITY.index(worst(list(judged)).kind) > SEVERITY.index("cannot tell"):
            return answer.verdict
        name = f"{self.arithmetic.dtype}-sums"
        text = f"explained by sums in {self.arithmetic.dtype}, not by sums in {self.arithmetic.accumulate}"
        return replace(answer.verdict, kind="other arithmetic", arithmetic=name, detail=text)


def _outputs(graph: Graph, gradient: bool) -> list[int]:
    """Return the positions of the results that a kernel gives: all, or without the value those of a gradient."""
    return list(graph.output_positions)[1:] if gradient else list(graph.output_positions)


def _result_names(count: int) -> list[str]:
    """Return the names of `count` results: ["y"], or ["y0", "y1", ...]."""
    return ["y"] if count == 1 else [f"y{k}" for k in range(count)]


def _are_several(returned: Any) -> bool:
    """Return whether a kernel returned results in a tuple, dict or list; a list of numbers is one array."""
    if isinstance(returned, list):
        return bool(returned) and all(hasattr(r, "shape") for r in returned)
    return isinstance(returned, tuple | dict)


def _written_verdict(name: str) -> Verdict:
    """Return the verdict on a kernel that changes its input `name`, or memory beside it."""
    text = f"the kernel writes into its input {name}, or into memory beside it"
    return Verdict("differs", np.inf, "written", name, detail=text)
