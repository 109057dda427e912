"""Judges a kernel's large output by a sample of its cells: exact values and allowances are computed for those alone.

Box rules say which input cells an output cell reads, so the reference is cropped to a selection of cells, and its
radius is that of a small graph: what is proven of these cells is proven of the whole computation. A sample can miss
what lies elsewhere: a fault in a share p of the cells is missed with probability at most (1 - p)**draws.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from specgrad.errors import ParameterError, ShapeError, UnsupportedError
from specgrad.graph.graph import CONSTANT, Graph
from specgrad.graph.ir.node import bind_inputs
from specgrad.op import shape_of
from specgrad.rounding import Arithmetic
from specgrad.scalar import Array
from specgrad.window.footprint import whole

from ..verdicts.defined_values import as_far_as_defined
from ..verdicts.judge import Verdict, allowed_balls, worst
from .cell_sample import Selection
from .cropped_reference import CroppedReference, OutputReference, read_cells
from .error_boxes import error_boxes
from .sample_tally import ErrorSample, JudgedPart, SampleTally
from .whole_sums import BlockedReference, is_whole_numbers, whole_sums

MAX_SELECTION = 2**28  # cells of all nodes of one selection: more do not fit into memory


@dataclass(frozen=True)
class SampledVerdict:
    """The verdict on a sample of the cells of all outputs.

    verdict     the worst; `index` is a cell of the whole output
    cells       how many cells the outputs have
    judged      how many cells were judged; where selections overlap, each time
    open_cells  of how many of those nothing is proven: overflow is possible, or a choice that rounding decides
    draws       how many cells were drawn independently, of the output with the fewest
    left_out    how many selections of borders and tile edges cost too much
    seed        what drew the cells
    seen, allowed   error and allowance of the cell whose error is the largest part of its allowance
    errors      per output, statistics of its errors
    complete    whether all cells were judged
    """

    verdict: Verdict
    cells: int
    judged: int
    open_cells: int
    draws: int
    left_out: int
    seed: int
    seen: float = 0.0
    allowed: float = 0.0
    errors: Mapping[str, ErrorSample] = field(default_factory=dict)
    complete: bool = False

    def missed(self, share: float) -> float:
        """Return the largest probability with which a fault in this share of the cells of an output is missed; 1 where
        cells are open, since it may lie in those.

        >>> SampledVerdict(Verdict("exact"), 1000, 100, 0, 100, 0, 0).missed(0.05) < 0.006
        True
        """
        return 1.0 if self.open_cells else 0.0 if self.complete else (1.0 - share) ** self.draws

    def __str__(self) -> str:
        text = f"{self.verdict}; {self.judged:,} of {self.cells:,} cells judged"
        if self.open_cells:
            text += f", {self.open_cells:,} of them open"
        if self.left_out:
            text += f", {self.left_out} selections of edges left out"
        return text if self.complete else f"{text}, {self.draws:,} drawn independently (seed {self.seed})"


class SampledReference:
    """A reference whose outputs are judged by samples of their cells.

    graph        the reference, at the sizes of the arguments
    arithmetic   the executions that are allowed; None: float32, fused
    backend      what computes the float64 reference: "numpy" or "torch"
    formats      name of a node -> the format in which it is computed, where that is not the arithmetic's

    >>> import specgrad as sg
    >>> graph = sg.trace(lambda x, w: sg.contract(x, w, "ab,bc->ac"), (3000, 40), (40, 5000))
    >>> x, w = np.ones((3000, 40), np.float32), np.ones((40, 5000), np.float32)
    >>> print(SampledReference(graph).judge([x, w], [x @ w], cells=2000))  # doctest: +ELLIPSIS
    exact; ... of 15,000,000 cells judged, ... drawn independently (seed 0)
    """

    def __init__(
        self,
        graph: Graph,
        arithmetic: Arithmetic | None = None,
        backend: str = "numpy",
        formats: Mapping[str, str] | None = None,
    ) -> None:
        self.graph, self.arithmetic = graph.at(), arithmetic or Arithmetic()
        self.backend, self.formats = backend, formats
        self.rules = error_boxes(self.graph)
        self.outputs = [OutputReference(self.graph, self.rules, p) for p in self.graph.output_positions]

    def judge(
        self, arguments: Sequence[Any], outputs: Sequence[Any], cells: int | None = 4096, seed: int = 0
    ) -> SampledVerdict:
        """Return the verdict on a kernel's `outputs`, one array per output of the graph, by about `cells` drawn cells
        of each and all edges.

        ShapeError for another number of outputs, ParameterError for `cells` below 1.

        arguments   as the graph is called; NumPy arrays, also memory-mapped ones, or PyTorch tensors on the CPU
        cells       at least 1; None: all
        seed        another one draws other cells
        """
        if len(outputs) != len(self.outputs):
            raise ShapeError("sampled", f"the reference has {len(self.outputs)} outputs; got {len(outputs)}")
        names = [f"output {k}" for k in range(len(outputs))] if len(outputs) > 1 else ["output"]
        return verdict_of(self.tallies(arguments, dict(zip(names, outputs, strict=True)), cells, seed), seed)

    def tallies(
        self, arguments: Sequence[Any], outputs: Mapping[str, Any], cells: int | None, seed: int
    ) -> list[SampleTally]:
        """Return what is found in each of the last outputs of the graph, given by name; ParameterError for cells < 1.

        arguments, cells and seed are those of `judge`.
        """
        if cells is not None and cells < 1:
            raise ParameterError("sampled", f"cells must be at least 1; got {cells}", rule="P5")
        given, asked = self.arrays(arguments), self.outputs[-len(outputs) :]
        tallies = [SampleTally(name, one.size) for name, one in zip(outputs, asked, strict=True)]
        for tally, one, got in zip(tallies, asked, outputs.values(), strict=True):
            self._judge_output(tally, one, given, got, cells, seed)
        return tallies

    def arrays(self, arguments: Sequence[Any]) -> dict[int, Any]:
        """Return the arguments of a call, and the graph's constants, by position; raise ShapeError for wrong ones."""
        constants = {p: self.graph.constants[p] for p, n in enumerate(self.graph.nodes) if n.op is CONSTANT}
        return bind_inputs(self.graph, tuple(arguments)) | constants

    def _judge_output(
        self, tally: SampleTally, one: OutputReference, given: Mapping[int, Any], got: Any, cells: int | None, seed: int
    ) -> None:
        """Add to the tally what is found in a sample of one output, `got`.

        `given` are inputs and constants by position; about `cells` cells are drawn by `seed` (None: all).
        UnsupportedError for a selection that needs too many cells of the reference at once.
        """
        if shape_of(got) != one.shape:
            text = f"{tally.name} has shape {shape_of(got)}, must have {one.shape}"
            tally.verdict = Verdict("differs", np.inf, "shape", tally.name, detail=text)
            return
        try:
            if self._judge_blocks(tally, one, given, got, cells, seed):
                return
            reason = ""
        except UnsupportedError as error:  # as one block, if it fits
            reason = f" (block by block: {error})"
            tally.restart()
        for selection, cropped in one.selections(cells, seed):
            if cropped is None:
                tally.left_out += 1
                continue
            if cropped.cost > MAX_SELECTION:
                text = f"needs {cropped.cost:,} cells of the reference at once; at most {MAX_SELECTION:,} fit{reason}"
                raise UnsupportedError(tally.name, text)
            self._judge_selection(tally, selection, cropped, given, read_cells(got, selection.positions))

    def _judge_blocks(
        self, tally: SampleTally, one: OutputReference, given: Mapping[int, Any], got: Any, cells: int | None, seed: int
    ) -> bool:
        """Return whether the output needs sums that are computed block by block; then add to the tally what is found in
        a sample of it.

        The parameters are those of `_judge_output`. UnsupportedError if the rest behind the sums has too many cells.
        """
        sums = whole_sums(self.graph, self.rules, one.output) if not self.formats else []
        if not sums or (is_whole_numbers(given) and one.crop_box(whole(one.shape)).cost <= MAX_SELECTION):
            return False  # at once: without a rounding, there may be no allowance at all
        ends = {p: rule for p, rule in self.rules.items() if p not in {s.at for s in sums}}
        blocked = BlockedReference(self.graph, self.rules, sums, self.arithmetic, self.backend)
        for selection, cropped in OutputReference(self.graph, ends, one.output).selections(cells, seed):
            if cropped is None:
                tally.left_out += 1
                continue
            if cropped.cost > MAX_SELECTION:
                raise UnsupportedError(tally.name, f"needs {cropped.cost:,} cells of the reference behind its sums")
            ball = blocked.ball(cropped, given)
            tally.add(JudgedPart(selection, read_cells(got, selection.positions), ball, None, []))
        return True

    def _judge_selection(
        self, tally: SampleTally, selection: Selection, cropped: CroppedReference, given: Mapping[int, Any], got: Array
    ) -> None:
        """Add to the tally what is found in one selection of cells, of which the kernel wrote `got`.

        `cropped` computes these cells from `given`, inputs and constants by position.
        """
        read = {p: read_cells(given[p], positions) for p, positions in cropped.positions.items()}
        graph = cropped.cut.graph_with_constants({p: read[p] for p in cropped.constants})
        kinds = {p: np.int64 if self.graph.nodes[p].kind == "index" else np.float64 for p in cropped.inputs}
        arrays = [read[p].astype(kind) for p, kind in kinds.items()]
        (ball,) = allowed_balls(graph, arrays, self.arithmetic, self.backend, self.formats)
        ball = as_far_as_defined(ball, graph, arrays)
        tally.add(JudgedPart(selection, got, ball, graph, arrays))
        a = self.arithmetic
        if (a.dtype, a.operands, a.accumulate) == ("float32", None, None) and not self.formats:
            tally.add_usual(graph, arrays, got, self.backend)


def verdict_of(tallies: Sequence[SampleTally], seed: int) -> SampledVerdict:
    """Return the verdict on all outputs, whose `tallies` were sampled with this seed: the worst of them."""
    top = max(tallies, key=lambda t: t.verdict.ratio, default=SampleTally("", 0))
    return SampledVerdict(
        verdict=worst([t.verdict for t in tallies]) if tallies else Verdict("exact"),
        cells=sum(t.cells for t in tallies),
        judged=sum(t.judged for t in tallies),
        open_cells=sum(t.open_cells for t in tallies),
        draws=min((t.draws for t in tallies), default=0),
        left_out=sum(t.left_out for t in tallies),
        seed=seed,
        seen=top.seen,
        allowed=top.allowed,
        errors={t.name: t.errors() for t in tallies},
        complete=all(t.complete for t in tallies),
    )
