"""A kernel against a reference: on given arrays, on drawn ones, or on what a strategy of Hypothesis gives."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from specgrad.errors import ParameterError
from specgrad.graph.ir.tree import is_shape
from specgrad.interop.model import array_of
from specgrad.rounding import FORMATS, Arithmetic

from ..verdicts.judge import Verdict
from .arrays import MANY_CELLS, library_of, to_numpy, type_name
from .case import KernelCase
from .draw_inputs import InputShapes, check_formats, drawn_cases, to_format, usual_count
from .examine import Kernel, ReferenceExaminer
from .failure_text import failure_text, repeat_script
from .result import ConformanceError, ConformanceSummary
from .shrink import shrink_case

EXAMPLES = 100  # drawn of a strategy where nobody says how many
SHRINK_SECONDS = 10.0
EXPORTED_SIZES = 4  # open sizes that are drawn of a PyTorch reference, which takes a second to be read at each


class KernelTest:
    """One call of `assert_conforms` with a reference: asks cases, counts verdicts, raises at the first failure.

    examiner    asks one case
    gradient    asks for the gradient, where the kernel has one
    may_refuse  whether the kernel may raise NotImplementedError
    """

    def __init__(self, examiner: ReferenceExaminer, gradient: ReferenceExaminer | None, may_refuse: bool) -> None:
        self.examiner, self.gradient, self.may_refuse = examiner, gradient, may_refuse
        self.done = ConformanceSummary(examiner.reference.title)
        self.last = KernelCase({}, {})
        """The case that was asked last."""

    def run(self, cases: Iterable[KernelCase]) -> ConformanceSummary:
        """Return what became of all the cases; raise ConformanceError at the first that the kernel fails."""
        for case in cases:
            if case.data == "given" or self.examiner.is_defined(case):
                self.ask(case)
        return self.finish()

    def ask(self, case: KernelCase, *, shrink: bool = True) -> None:
        """Judge one case, and its gradient; raise ConformanceError, with a shrunk case if `shrink`, where it fails."""
        self.last = case
        self._ask_of(self.examiner, case, shrink)
        if self.gradient is not None and not case.holds(lambda a: ~np.isfinite(a)):
            self._ask_of(self.gradient, self._with_cotangent(case), shrink)

    def _ask_of(self, examiner: ReferenceExaminer, case: KernelCase, shrink: bool) -> None:
        """Add to `done` what one examiner finds of a case.

        Raise ConformanceError, if `shrink` with a smaller case, if it fails.
        """
        answer = examiner.examine(case)
        if answer.passes or (self.may_refuse and answer.verdict.kind == "refuses"):
            self.done.add(answer.verdict, answer.samples)
            return
        small = answer
        if shrink and examiner.is_live and not answer.samples:
            small = shrink_case(answer, examiner.examine, seconds=SHRINK_SECONDS)
        explained = examiner.explained(answer)
        script = repeat_script(small, examiner.kernel, examiner.arrays)
        text = failure_text(answer, small, explained, examiner.reference.title, script)
        raise ConformanceError(small.case, explained, text, script) from answer.error

    def _with_cotangent(self, case: KernelCase) -> KernelCase:
        """Return the case asking for the gradient, with a cotangent of the result drawn by the case's seed.

        ParameterError for a reference of several results.
        """
        graph = self.examiner.graph(case)
        if len(graph.output_positions) != 1:
            raise ParameterError("gradient", "goes with a reference of one result", rule="P5")
        node, form = graph.nodes[graph.output_positions[0]], self.examiner.arithmetic.dtype
        drawn = np.random.default_rng([case.seed, 1]).normal(size=node.shape).astype(np.float32)
        arrays, formats = {**case.arrays, "g": to_format(drawn, form)}, {**case.formats, "g": form}
        return replace(case, arrays=arrays, formats=formats, gradient=True)

    def finish(self) -> ConformanceSummary:
        """Return the summary; raise ConformanceError if no answer could be judged."""
        if not self.done.judged:
            text = "nothing was judged: every answer was refused, or had cells of which nothing is proven"
            raise ConformanceError(self.last, Verdict("cannot tell", detail=text), f"{self.done}: {text}")
        return self.done

    def run_strategy(self, strategy: Any, count: int, seed: int, layouts: Sequence[str]) -> ConformanceSummary:
        """Return what became of `count` examples of a strategy, which Hypothesis draws by `seed` and shrinks.

        Each is asked in every layout. A failure shows the smallest example.
        """
        import hypothesis

        @hypothesis.seed(seed)
        @hypothesis.settings(
            max_examples=count, deadline=None, database=None, suppress_health_check=list(hypothesis.HealthCheck),
            report_multiple_bugs=False,
        )  # fmt: skip
        @hypothesis.given(strategy)
        def ask(example: Any) -> None:
            case = given_case(example)
            for layout in layouts:
                self.ask(case.in_layout(layout), shrink=False)

        ask()
        return self.finish()


def is_strategy(inputs: Any) -> bool:
    """Return whether the inputs are a strategy of Hypothesis."""
    strategies = sys.modules.get("hypothesis.strategies")
    return strategies is not None and isinstance(inputs, strategies.SearchStrategy)


# --- what was given ---------------------------------------------------------------------------------------------------


def named_inputs(inputs: Any) -> dict[str, Any]:
    """Return inputs by name: those of a mapping, else x of one array or shape, x0, x1, ... of several."""
    if isinstance(inputs, Mapping):
        return {str(name): value for name, value in inputs.items()}
    if isinstance(inputs, list | tuple) and not is_shape(inputs):
        return {f"x{k}" if len(inputs) > 1 else "x": value for k, value in enumerate(inputs)}
    return {"x": inputs}


def shapes_of(named: Mapping[str, Any]) -> dict[str, tuple[int | str, ...]] | None:
    """Return the inputs `named` if they are shapes; None if they are arrays; ParameterError for both in one call."""
    shapes = {name: is_shape(value) for name, value in named.items()}
    if all(shapes.values()) and named:
        return dict(named)
    if any(shapes.values()):
        mixed = ", ".join(f"{name} is {'a shape' if s else 'an array'}" for name, s in shapes.items())
        raise ParameterError("inputs", f"must be all arrays or all shapes; {mixed}", rule="P5")
    return None


def given_case(inputs: Any) -> KernelCase:
    """Return the case of arrays that were given, which the kernel gets in their own types.

    Refused: what is no array.
    """
    named = named_inputs(inputs)
    held = {name: array_of(to_numpy(value), name, "assert_conforms") for name, value in named.items()}
    return KernelCase(held, {name: type_name(value) or held[name].dtype.name for name, value in named.items()})


def given_library(inputs: Any) -> str:
    """Return whose arrays `inputs` are, a key of ARRAYS: the first that is not NumPy's decides."""
    libraries = [library_of(value) for value in named_inputs(inputs).values()]
    return next((name for name in libraries if name != "numpy"), "numpy")


def check_arithmetic(case: KernelCase, arithmetic: Arithmetic | None) -> Arithmetic:
    """Return the arithmetic; float32 where none is given, which ParameterError refuses for inputs of other formats."""
    floats = {name: form for name, form in case.formats.items() if form in FORMATS}
    if arithmetic is None:
        for name, form in floats.items():
            if form != "float32":
                narrow = f' (sums in {form}) or Arithmetic({form!r}, accumulate="float32")' if "16" in form else ""
                text = (
                    f"input {name} is of {form}; say how the kernel computes: arithmetic=Arithmetic({form!r}){narrow}"
                )
                text += "; or give it as float32"
                raise ParameterError("arithmetic", text, rule="P5")
    return arithmetic or Arithmetic("float32")


def check_by_reference(
    examiner: Callable[[str, Arithmetic], ReferenceExaminer],
    inputs: Any,
    *,
    gradient: Kernel | None,
    formats: str | Mapping[str, str] | None,
    arrays: str | None,
    arithmetic: Arithmetic | None,
    layouts: Sequence[str],
    count: int | None,
    seed: int,
    may_refuse: bool,
) -> ConformanceSummary:
    """Return what became of a kernel's answers; raise ConformanceError at the first wrong one.

    The parameters are those of `assert_conforms`; `examiner(arrays, arithmetic)` makes what asks one case.
    """

    def test(library: str, general: Arithmetic) -> KernelTest:
        value = examiner(library, general)
        return KernelTest(value, None if gradient is None else value.of_gradient(gradient), may_refuse)

    if count is not None and count < 1:
        raise ParameterError("assert_conforms", f"count must be at least 1; got {count}", rule="P5")
    if is_strategy(inputs):
        asked = test(arrays or "numpy", arithmetic or Arithmetic("float32"))
        return asked.run_strategy(inputs, count or EXAMPLES, seed, layouts)
    shapes = shapes_of(named_inputs(inputs))
    if shapes is None:
        if formats is not None:
            raise ParameterError("formats", "go with shapes; arrays have their own", rule="P5")
        case = given_case(inputs)
        asked = test(arrays or given_library(inputs), check_arithmetic(case, arithmetic))
        several = asked.examiner.is_live and case.cells <= MANY_CELLS
        return asked.run(case.in_layout(layout) for layout in (layouts if several else layouts[:1]))
    usual = "float32" if arithmetic is None else arithmetic.dtype
    drawn = InputShapes(shapes, check_formats(shapes, formats, usual))
    general = arithmetic or Arithmetic(formats if isinstance(formats, str) else "float32")
    asked = test(arrays or "numpy", general)
    if not asked.examiner.is_live:
        raise ParameterError("inputs", "recorded results go with the arrays that they were made of", rule="P5")
    asked.examiner.graph(drawn.draw("gaussian", 0, drawn.draw_sizes(seed * 1_000_003)))  # what the reference is, shows
    most_sizes = EXPORTED_SIZES if asked.examiner.reference.is_exported else None
    return asked.run(drawn_cases(drawn, count or usual_count(drawn, layouts), seed, layouts, most_sizes))
