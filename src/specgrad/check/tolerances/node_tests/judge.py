"""What every correct execution of a node test may give, against the values that onnx stores and the pair it allows.

low <= y <= high    per cell: every correct execution y lies in the proven ball around the exact value, and it is a
                    number of the output's format, so low and high are the outermost such numbers in the ball
atol, rtol          enough for all of them: abs(y - stored) <= atol + rtol*abs(stored), NumPy's rounding included
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
from onnx import TensorProto

from specgrad.errors import ContradictionError, SpecgradError
from specgrad.rounding import FORMATS, Ball, Format
from specgrad.rounding.stated import deployment_of
from specgrad.scalar import Array

from ...verdicts.judge import expected_balls
from ..allclose import allclose_pair
from .load import BFLOAT16_RTOL, NodeTest
from .read import ReadTest, read_test
from .witness import executions

DTYPES = {
    TensorProto.FLOAT: "float32",
    TensorProto.FLOAT16: "float16",
    TensorProto.BFLOAT16: "bfloat16",
    TensorProto.DOUBLE: "float64",
}
"""The formats in which an output is judged."""
ROUNDING_SLACK = 1 + 2.0**-50  # roundings of ours in one difference
MAX_CELLS_NAMED = 5  # cells of an output that are named one by one
State = Literal["proven", "unbounded", "not read", "integer", "boolean", "other"]
Share = Literal["enough", "below", "open"]


@dataclass(frozen=True)
class TestCell:
    """One cell of an output, at `index`: what is `stored` there, and the `exact` value.

    low, high   no correct execution gives less, or more
    computed    what a correct execution gives that fails onnx's pair; None: no such is meant
    """

    index: tuple[int, ...]
    stored: float
    exact: float
    low: float
    high: float
    computed: float | None = None


@dataclass(frozen=True, eq=False)
class TestOutput:
    """What is proven of one output, `name`, of the type `dtype`, ONNX's type in NumPy's words.

    state      "proven"; "unbounded" where nothing is known of a cell; "not read"; of no float: "integer", "boolean",
               "other"
    exact, radius   per cell: no correct execution is farther than `radius` from `exact`, nor is the exact value
    rtol, atol   the pair that is enough; None unless the state is "proven"
    onnx       whether onnx's own pair is "enough" for all correct executions, "below" one that was found, or "open"
    outside    how many stored values no correct execution gives; `cells` names some of them
    failing    how many cells of a correct execution fail onnx's pair; `witness` is the worst of them
    undecided  of integers and booleans: cells of which not one value is proven; None: the output was not read
    """

    name: str
    state: State
    dtype: str
    exact: Array | None = None
    radius: Array | None = None
    rtol: float | None = None
    atol: float | None = None
    onnx: Share | None = None
    outside: int = 0
    cells: tuple[TestCell, ...] = ()
    failing: int = 0
    witness: TestCell | None = None
    undecided: int | None = None

    def to_json(self, cells: bool) -> dict[str, Any]:
        """Return the output as JSON data, with `cells` also exact values and radii."""
        data = {key: value for key, value in asdict(self).items() if key not in ("exact", "radius")}
        data["shape"] = [] if self.exact is None else list(self.exact.shape)
        return data | ({"exact": self.exact, "radius": self.radius} if cells and self.exact is not None else {})


@dataclass(frozen=True)
class JudgedTest:
    """A test, `name`, of one or several `operators`, with what is proven of its `outputs`.

    rtol, atol   onnx's own pair
    reason   why it was not read; "" if it was
    assumed   the errors of functions that the proof takes, as a sentence; "" if there are none
    """

    name: str
    operators: tuple[str, ...]
    outputs: tuple[TestOutput, ...]
    rtol: float
    atol: float
    reason: str = ""
    assumed: str = ""

    def to_json(self, cells: bool) -> dict[str, Any]:
        """Return the test as JSON data, with `cells` also exact values and radii."""
        outputs = [output.to_json(cells) for output in self.outputs]
        own = {"onnx_rtol": self.rtol, "onnx_atol": self.atol, "reason": self.reason, "assumed": self.assumed}
        return {"name": self.name, "operators": list(self.operators), **own, "outputs": outputs}


def judge_test(test: NodeTest, execution: str = "fused") -> JudgedTest:
    """Return what is proven of every output of a test, for the class of executions `execution`.

    A test that cannot be read has its reason; its outputs are not judged then.
    """
    try:
        read = read_test(test, execution)
        with np.errstate(all="ignore"):  # tests with infinities mean them
            balls = expected_balls(read.graph, read.inputs, read.arithmetic, formats=read.formats)
    except SpecgradError as error:
        outputs = tuple(TestOutput(end.name, _state_unread(end), dtype_of(end)) for end in test.model.graph.output)
        return JudgedTest(test.name, test.operators, outputs, test.rtol, test.atol, str(error))
    outputs = tuple(_judge_output(test, read, k, ball) for k, ball in enumerate(balls))
    assumed = deployment_of(read.arithmetic, read.graph).get("functions", "")
    return JudgedTest(test.name, test.operators, outputs, test.rtol, test.atol, assumed=assumed)


def dtype_of(end: Any) -> str:
    """Return the type of an input or output, a ValueInfoProto, in NumPy's words; "sequence" and the like as they are.

    >>> from onnx import TensorProto, helper
    >>> dtype_of(helper.make_tensor_value_info("x", TensorProto.BFLOAT16, [1]))
    'bfloat16'
    """
    kind = end.type.WhichOneof("value") or "unknown"
    if kind != "tensor_type":
        return str(kind.removesuffix("_type"))
    element = end.type.tensor_type.elem_type
    return DTYPES.get(element) or str(TensorProto.DataType.Name(element)).lower()


def _state_unread(end: Any) -> State:
    """Return the state of an output that nothing is proven of: "not read" for floats, else what it holds."""
    dtype = dtype_of(end)
    if dtype in DTYPES.values():
        return "not read"
    return "boolean" if dtype == "bool" else "integer" if dtype.lstrip("u").startswith("int") else "other"


def _judge_output(test: NodeTest, read: ReadTest, k: int, ball: Ball) -> TestOutput:
    """Return what is proven of output number `k`, of which `ball` holds every correct execution."""
    end, stored = test.model.graph.output[k], test.outputs[k]
    name, dtype, state = end.name, dtype_of(end), _state_unread(end)
    if state != "not read":
        return TestOutput(name, state, dtype, undecided=int((ball.radius > 0).sum()))
    if stored is None or stored.shape != ball.shape:
        return TestOutput(name, "not read", dtype)
    stored = stored.astype(np.float64)
    exact, radius = np.asarray(ball.value, np.float64), ball.radius
    cells = Cells(stored, ball, FORMATS[dtype])
    outside = ~ball.contains(stored)
    named = tuple(cells.at(index) for index in np.argwhere(outside)[:MAX_CELLS_NAMED])
    judged = TestOutput(name, "unbounded", dtype, exact, radius, outside=int(outside.sum()), cells=named)
    if np.isinf(cells.distance).any():
        return judged
    form = FORMATS["float32" if dtype == "bfloat16" else dtype]  # the runner compares bfloat16 in float32
    size = np.where(np.isfinite(stored), np.abs(stored), 0.0)
    rtol, atol = allclose_pair([cells.distance], [size], [size], form)
    judged = replace(judged, state="proven", rtol=rtol, atol=atol, onnx="enough")
    allowed = test.atol + _onnx_rtol(test, dtype) * size
    needed = np.where(cells.distance > 0, cells.distance * (1 + 8 * form.u) + 4 * form.smallest, 0.0)
    if (needed <= allowed).all():
        return judged
    failing, witness = _find_witness(read, k, cells, allowed)
    return replace(judged, onnx="below" if failing else "open", failing=failing, witness=witness)


def _onnx_rtol(test: NodeTest, dtype: str) -> float:
    """Return the rtol with which onnx's runner compares outputs of this type."""
    return max(test.rtol, BFLOAT16_RTOL) if dtype == "bfloat16" else test.rtol


class Cells:
    """The cells of one output: what is `stored`, the ends `low` and `high` of what is correct in a format, and the
    largest `distance` of a correct value from the stored one.

    ContradictionError where the ball holds no number of the format.
    """

    def __init__(self, stored: Array, ball: Ball, form: Format) -> None:
        self.stored, self.ball = stored, ball
        finite = np.isfinite(ball.value)
        with np.errstate(all="ignore"):
            self.low = np.where(finite, numbers_within(ball.low, form, np.ceil), ball.value)
            self.high = np.where(finite, numbers_within(ball.high, form, np.floor), ball.value)
            far = np.maximum(np.abs(stored - self.low), np.abs(self.high - stored)) * ROUNDING_SLACK
            same = (ball.value == stored) | (np.isnan(ball.value) & np.isnan(stored))
            far = np.where(finite, np.where(np.isfinite(stored), far, np.inf), np.where(same, 0.0, np.inf))
            self.distance = np.where(np.isinf(ball.radius), np.inf, far)
        if (finite & (self.low > self.high)).any():
            raise ContradictionError(f"a ball holds no number of {form.name}")

    def at(self, index: Any, computed: float | None = None) -> TestCell:
        """Return the cell at an index, of an execution that gave `computed` there."""
        place = tuple(int(i) for i in index)
        stored, exact, low, high = (float(a[place]) for a in (self.stored, self.ball.value, self.low, self.high))
        return TestCell(place, stored, exact, low, high, computed)


def numbers_within(end: Array, form: Format, to: Any) -> Array:
    """Return the first numbers of a format from `end` on: upwards with to=np.ceil, downwards with np.floor.

    Infinite ends, and those beyond the largest number, stay as they are.

    >>> numbers_within(np.array([1.001, -1.001]), FORMATS["bfloat16"], np.ceil)
    array([ 1.0078125, -1.       ])
    """
    if form.digits >= FORMATS["float64"].digits:
        return end
    power = np.maximum(np.frexp(end)[1] - 1, form.lowest) - (form.digits - 1)
    near = np.ldexp(to(np.ldexp(end, -power)), power)
    return np.where(np.isfinite(end) & (np.abs(near) <= form.largest), near, end)


def _find_witness(read: ReadTest, k: int, cells: Cells, allowed: Array) -> tuple[int, TestCell | None]:
    """Return how many cells fail in a correct execution of output `k` that was found, and the worst of them.

    An execution must be within the ball: else one of the two is wrong, a ContradictionError.
    """
    failing, worst, witness = 0, 0.0, None
    for outputs in executions(read):
        got = outputs[k]
        if not cells.ball.contains(got).all():
            raise ContradictionError(f"an execution of {read.graph.nodes[-1].name} lies outside its ball")
        with np.errstate(all="ignore"):
            times = np.where(np.isfinite(got), np.abs(got - cells.stored) / allowed, 0.0)
        fails = ~np.isclose(got, cells.stored, rtol=0, atol=allowed, equal_nan=True) & (times > 1)
        failing = max(failing, int(fails.sum()))
        if fails.any() and float(times.max()) > worst:
            worst = float(times.max())
            place = np.unravel_index(int(np.argmax(times)), times.shape)
            witness = cells.at(place, float(got[place]))
    return failing, witness
