"""Prove which decisions no correct runtime can change. Sample by sample: proven, not proven, or shown to differ.

proven       every execution that `PreserveResult.deployment` describes, and exact arithmetic, decides the same
not proven   margin and tolerance stand beside each other; no two executions that differ were found
differs      two executions of the class that decide differently, with their outputs
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from specgrad import html_page
from specgrad.deadline import check_time
from specgrad.errors import TimeLimitError
from specgrad.interop.model import open_model

from ...errors import ParameterError, UnsupportedError, need
from ...properties.property import exactly
from ...rounding import Arithmetic
from ...rounding.stated import deployment_of
from ...scalar import Array
from ..models.checkpoint import Checkpoint, digest_of
from ..models.emulate import MAX_MULTIPLY_ADDS, Executor, multiply_adds
from .box_margins import margins_over_box
from .decision import Decision, parse
from .flip_search import FlipSearch
from .forward_batches import ForwardBatches
from .margins import DecisionMargins, DecisionProblem, margins_at
from .runtime_pool import Runtimes, installed
from .sample_verdict import Kind, Sample, sample_verdicts
from .samples import Samples, samples_of
from .usual_margins import count_estimated

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, eq=False)
class PreserveResult:
    """The verdicts on all samples, with the model, the decision and the class of executions.

    Attributes
    ----------
    model : str
        Name of the model.
    decision : Decision
        What is decided: argmax, top-k, a threshold.
    samples : tuple of Sample
        The verdict on every sample, in order.
    deployment : mapping of str to str
        The class of executions in sentences, by topic.
    eps : Fraction or None
        Radius of the box around every sample; None: points.
    notes : tuple of str
        What else to know.

    Examples
    --------
    >>> import specgrad as sg
    >>> net = sg.trace(lambda x: sg.relu(x), (1, 2))
    >>> found = sg.check.preserve(net, np.float32([[1, 0], [0, 2]]), runtimes=())
    >>> found.verdict, found.counts
    ('proven', {'proven': 2, 'not proven': 0, 'differs': 0})
    """

    model: str
    decision: Decision
    samples: tuple[Sample, ...]
    deployment: Mapping[str, str]
    eps: Fraction | None = None
    notes: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """Return {verdict: number of samples}, of all three verdicts."""
        counted = Counter(s.verdict for s in self.samples)
        return {kind: counted[kind] for kind in ("proven", "not proven", "differs")}

    @property
    def verdict(self) -> Kind:
        """ "differs" if a sample does, else "not proven" if one is not, else "proven"."""
        counts = self.counts
        return "differs" if counts["differs"] else "not proven" if counts["not proven"] else "proven"

    @property
    def decisions(self) -> dict[str, int]:
        """Return how many decisions of all samples are proven, only "estimated" to stay, and "open"; a sample about
        which nothing is known has none.
        """
        total, unproven, estimated = (
            sum(getattr(s, name) for s in self.samples) for name in ("decisions", "unproven", "estimated")
        )
        return {"proven": total - unproven, "estimated": estimated, "open": unproven - estimated}

    def __str__(self) -> str:
        c, total = self.counts, len(self.samples)
        text = f"{self.decision}: {c['proven']} of {total} proven, {c['not proven']} not proven"
        return f"{text}, {c['differs']} shown to differ"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return how many samples are proven, and those that are not, as HTML for notebooks."""
        rows = [(s.number, s.verdict, f"{s.ratio:.3g}") for s in self.samples if s.verdict != "proven"]
        return html_page.fragment(self.verdict, self.sentences(), ("sample", "verdict", "margin over tolerance"), rows)

    def sentences(self) -> list[str]:
        """Return in words what was decided how often; of many decisions a sample, or estimated ones, also those."""
        d = self.decisions
        if not d["estimated"] and all(s.decisions <= 1 for s in self.samples):
            return [str(self)]
        each = f"{d['proven']} of {sum(d.values())} decisions proven"
        return [str(self), f"{each}, {d['estimated']} estimated to stay (no proof), {d['open']} open"]

    def to_json(self) -> dict[str, Any]:
        """Return JSON data: model, decision, eps, how many samples, proven, not_proven, differ, `decisions` (how many
        are proven, estimated, open), `records` (a row per sample), deployment, notes.
        """
        c = self.counts
        return {
            "model": self.model,
            "decision": str(self.decision),
            "eps": None if self.eps is None else str(self.eps),
            "samples": len(self.samples),
            "proven": c["proven"],
            "not_proven": c["not proven"],
            "differ": c["differs"],
            "decisions": self.decisions,
            "records": [s.to_json() for s in self.samples],
            "deployment": dict(self.deployment),
            "notes": list(self.notes),
        }


def preserve(
    model: Any,
    data: Any,
    decision: str | Decision = "argmax",
    *,
    axis: int | None = None,
    arithmetic: Arithmetic | None = None,
    stored: Collection[str] = (),
    output: int | str | None = None,
    eps: Any = None,
    low: Any = None,
    high: Any = None,
    runtimes: Collection[str] | None = None,
    seconds: float = 60.0,
    checkpoint: str | Path | None = None,
    progress: Progress | None = None,
) -> PreserveResult:
    """Return, for every sample, whether each execution of the class decides the same.

    Parameters
    ----------
    model : Graph, path, bytes, ModelProto or nn.Module
        A Graph, an ONNX file (path, bytes or ModelProto) or a PyTorch module.
    data : array or mapping of str to array
        An array whose first axis numbers the samples, or one per input by name; bytes and integers are numbers.
    decision : str or Decision, default "argmax"
        "argmax", "top-5", "threshold:0.5", "mask" (specgrad.check.decisions.decision).
    axis : int, optional
        The axis of classes; if not given, the second, or the only one.
    arithmetic : Arithmetic, optional
        The class of executions; float32, fused, if not given.
    stored : collection of str, optional
        Names of nodes whose results the runtime is known to round and store.
    output : int or str, optional
        Which output is decided, by number or name, where the model has several.
    eps : number, optional
        Every cell of a sample may also move by so much, kept between low and high: then it is `certify`.
    low : number or array, optional
        Least value of every cell.
    high : number or array, optional
        Largest value of every cell.
    runtimes : collection of str, optional
        Which real runtimes to ask about samples that are not proven; all that are installed, if not given.
    seconds : float, default 60.0
        Limit for one sample.
    checkpoint : str or Path, optional
        A file of JSON lines that is written along the way; a run that was stopped goes on from it.
    progress : callable, optional
        Called along the way with (what, done, total).

    Returns
    -------
    PreserveResult
        A verdict per sample; it prints.

    Raises
    ------
    ParameterError
        If eps is negative or goes with another format than float32.
    UnsupportedError
        If eps meets a model of several formats.

    Examples
    --------
    >>> import specgrad as sg
    >>> w = np.float32([[1, 0], [0, 1]])
    >>> net = sg.trace(lambda x: sg.linear(w, None, sg.relu(x)), (1, 2))
    >>> result = preserve(net, np.float32([[1, 0], [0.5, 0.75]]), runtimes=())
    >>> str(result), [s.decision for s in result.samples]
    ('argmax: 2 of 2 proven, 0 not proven, 0 shown to differ', [0, 1])
    """
    need("torch", "preserve needs")
    asked, used = replace(parse(decision), axis=axis), arithmetic or Arithmetic()
    used.check_plain("preserve")
    width = None if eps is None else exactly("preserve", "eps", eps)
    if width is not None and (width < 0 or used.dtype != "float32"):
        text = f"eps must not be negative, and goes with float32; got eps={eps}, dtype={used.dtype!r}"
        raise ParameterError("preserve", text, rule="P5")
    given = open_model(model, "preserve")
    samples = samples_of(given, data, used)
    question = DecisionProblem(
        samples.graph, asked, used, tuple(stored), _output_number(samples, output), samples.formats, seconds
    )
    if width is not None and any(samples.graph.nodes[p].kind == "index" for p in samples.graph.input_positions):
        raise UnsupportedError("preserve", "eps moves numbers; this model takes ids, which have none beside them")
    if width is not None and not question.is_uniform:
        raise UnsupportedError("preserve", "eps needs a model that computes in one format; this one has integer sums")
    said: dict[str, Any] = {"decision": str(asked), "arithmetic": repr(used), "output": question.output}
    said |= {"eps": str(width), "limits": [str(low), str(high)], "stored": sorted(stored)}
    searcher = _flip_search(question, samples, used, runtimes, seconds)
    said["runtimes"] = list(searcher.runtimes.names) if searcher.runtimes is not None else []
    source = None if given.kind == "graph" else given.source
    run = _SampleRunner(question, samples, width, (low, high), searcher, seconds, source)
    try:
        with Checkpoint(
            checkpoint, "preserve", _checkpoint_digest(samples, said), {**said, "samples": len(samples)}
        ) as file:
            late: dict[int, dict[str, Any]] = {}  # not in the file: a run that goes on asks again
            for number in range(len(samples)):
                if progress is not None:
                    progress(f"sample {number}", number, len(samples))
                if number in file.done:
                    Sample.read(file.done[number], number)
                else:
                    try:
                        check_time("preserve")
                        file.add(number, run.sample(number).to_json())
                    except TimeLimitError:
                        late[number] = run.out_of_time(number).to_json()
                if progress is not None:
                    verdict = (late.get(number) or file.done[number])["verdict"]
                    progress(f"sample {number}: {verdict}", number + 1, len(samples))
            judged = {**file.done, **late}
            records = tuple(Sample.read(judged[n], n) for n in range(len(samples)))
    finally:
        run.close()
    return PreserveResult(given.title, asked, records, deployment_of(used, samples.graph), width, samples.notes)


def _output_number(samples: Samples, asked: int | str | None) -> int:
    """Return the number of the decided output among all outputs, asked for by number or name, or the only one of
    numbers.

    ParameterError if it is no output of numbers, or not said where there are several.
    """
    graph = samples.graph
    names = [graph.nodes[p].name for p in graph.output_positions]
    real = [k for k, p in enumerate(graph.output_positions) if graph.nodes[p].kind == "real"]
    if asked is None and len(real) == 1:
        return real[0]
    number = names.index(asked) if asked in names else asked
    if not isinstance(number, int) or number not in real:
        text = (
            "the model has no output of numbers to decide from"
            if not real
            else f"say which of its outputs is decided: {names}"
        )
        raise ParameterError("preserve", f"{text}; got output={asked!r}", rule="P5")
    return number


def _checkpoint_digest(samples: Samples, said: Mapping[str, Any]) -> str:
    """Return a digest of samples, options (`said`, by name) and version, which a checkpoint must match."""
    from ... import __version__

    return digest_of([samples.digest(), repr(sorted(said.items())), __version__])


def _flip_search(
    question: DecisionProblem, samples: Samples, used: Arithmetic, names: Collection[str] | None, seconds: float
) -> FlipSearch:
    """Return the search for executions that differ; runtimes take part in plain float32 only.

    `names` are the runtimes that were asked for, None: all; `used` is the arithmetic of the executions. `question` is
    the model and its decision; `seconds` limits a run of one runtime. ParameterError for a runtime that is not
    installed.
    """
    plain = used.dtype == "float32" and used.operands is None
    chosen = installed(names) if plain else ()
    asked = Runtimes(chosen, samples.graph, samples.source, seconds) if chosen else None
    apart = question.is_uniform and multiply_adds(samples.graph) <= MAX_MULTIPLY_ADDS
    return FlipSearch(question, Executor(samples.graph, used) if apart else None, asked)


@dataclass
class _SampleRunner:
    """Judges one sample after the other: the model and decision, its samples, and the search for differing executions.

    question   graph, decision and class of executions
    searcher   looks for executions that decide differently
    seconds    that one sample may take

    eps (None: a point) and limits are the box around a sample; source is the file or module that runtimes run.
    """

    question: DecisionProblem
    samples: Samples
    eps: Fraction | None
    limits: tuple[Any, Any]
    searcher: FlipSearch
    seconds: float
    source: Any = None

    @cached_property
    def forward(self) -> ForwardBatches:
        """The verdicts that forward balls of whole batches prove."""
        return ForwardBatches(self.question, self.samples)

    def sample(self, number: int) -> Sample:
        """Return the verdict on the sample of this number: "proven", "differs" with two executions, or "not proven".

        ParameterError for an id outside of the table that it chooses from.
        """
        start = time.monotonic()
        inputs = self.samples.numbers(number)
        if not all(np.isfinite(x).all() for x in inputs):
            return self._not_proven(number, start, "the sample is not finite")
        try:
            return self._judged(number, inputs, start)
        except IndexError as error:
            if all(self.samples.graph.nodes[p].kind == "real" for p in self.samples.graph.input_positions):
                raise
            text = f"an id of sample {number}, or of one beside it, is outside of the table that it chooses from"
            raise ParameterError("preserve", text, rule="P5") from error

    def _judged(self, number: int, inputs: list[Array], start: float) -> Sample:
        """Return the verdict on a sample with these finite inputs; IndexError for ids outside of their table."""
        executions: list[dict[str, Any]] = []
        outside: list[str] = []
        estimated = 0
        if self.eps is not None:
            whole = self.samples.arrays[0].dtype.kind in "iub"
            asked = self.eps, self.limits, self.seconds, whole, self.source
            margins, executions = margins_over_box(self.question, inputs, *asked)
        else:
            if (settled := self.forward.settled(number)) is not None:
                return settled
            margins = margins_at(self.question, inputs)
            if not margins.proven.all() and np.isfinite(margins.value).all():
                pair, outside = self.searcher.search(self.samples.fed(number), margins)
                executions = _differing_pair(pair, margins)
                estimated = count_estimated(self.question, inputs, margins, pair)
        if not np.isfinite(margins.value).all():
            return self._not_proven(number, start, "the exact outputs are not known to be finite")
        (sample,) = sample_verdicts(self.question, margins, number, 1, time.monotonic() - start)
        verdict: Kind = "differs" if executions else sample.verdict
        return replace(sample, verdict=verdict, executions=executions, outside=outside, estimated=estimated)

    def out_of_time(self, number: int) -> Sample:
        """Return the verdict "not proven" on the sample of this number, which was not reached in time."""
        return self._not_proven(number, time.monotonic(), "out of time")

    def _not_proven(self, number: int, start: float, reason: str) -> Sample:
        """Return the verdict "not proven" of sample `number`, begun at `start`, with its reason."""
        return Sample(number, "not proven", None, 0, 0, None, None, [], time.monotonic() - start, reason)

    def close(self) -> None:
        """End the processes in which runtimes were asked."""
        if self.searcher.runtimes is not None:
            self.searcher.runtimes.close()


def _differing_pair(pair: list[Any], margins: DecisionMargins) -> list[dict[str, Any]]:
    """Return a pair of executions as JSON, at the first decision where they differ, with the outputs compared there.

    `margins` has the comparisons. [] for no pair.
    """
    if not pair:
        return []
    differs = pair[0].decision != pair[1].decision
    place = int(np.flatnonzero(differs.reshape(len(differs), -1).any(1))[0])
    c = margins.comparisons
    here = c.place == place
    cells: Array = np.concatenate([c.larger[here], c.smaller[here]])
    return [run.to_json(place, cells[cells >= 0]) for run in pair]
