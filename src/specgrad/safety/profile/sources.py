"""The texts that the rules come from, with the version that was read, and the operators that they name."""

from __future__ import annotations

from dataclasses import dataclass

READ = "2026-11-15"


@dataclass(frozen=True)
class SourceText:
    """A page of the profile's authors: its name, and its commit as version, or the day of reading if none was noted."""

    name: str
    version: str


BRANCH = "0eddfae, ericjenn/working-groups branch ericjenn-srpwg-wg1"
REQS = SourceText("deliverables/reqs/reqs.md", "1598dbc, onnx/working-groups")
NEEDS = SourceText("deliverables/needs/needs.md", f"as read {READ}")
ISSUES = SourceText("deliverables/issues/issues.md", f"as read {READ}")
GRAPH = SourceText("documents/profile_graph/graph.md", "d0ed4fc, and 01aa782 where the two differ")
RESTRICTIONS = SourceText("SAIV26-SONNX operators/common/general_restrictions.md", "48c9397")
INFORMAL = SourceText("ops/docs/guidelines/informal.md", f"as read {READ}")
TEST_GUIDE = SourceText("ops/docs/guidelines/test.md", BRANCH)
STATUS = SourceText("meetings/attachments/2026-09-09-sonnx-status.md", BRANCH)
CONV = SourceText("ops/spec/informal/conv/conv2.md", BRANCH)
CONV_SA = SourceText("SAIV26-SONNX operators/conv/conv.md", "48c9397")
MAXPOOL = SourceText("ops/spec/informal/maxpool/maxpool.md", f"as read {READ}")
MAXPOOL_SA = SourceText("SAIV26-SONNX operators/maxpool/maxpool.md", "48c9397")
MAXPOOL_EJ = SourceText("ericjenn/sonnx ops/maxpool.md", "018bb8e")


def spec(name: str) -> SourceText:
    """Return the informal specification of the operator `name` as a source."""
    return SourceText(f"ops/spec/informal/{name}/{name}.md", f"as read {READ}")


_LISTED = """
Abs Add Cast Clip Concat Constant ConstantOfShape Conv ConvTranspose Div Equal Erf Exp Expand
Flatten GRU Gather Gemm GlobalAveragePool HardSwish Identity LSTM LeakyRelu Less Log MatMul Max
MaxPool Min Mod Mul Neg Not Pad Pow Range ReduceMean ReduceSum Relu Reshape Resize ScatterND Shape
Sigmoid Slice Softmax Softplus Split Sqrt Squeeze Sub Tanh Transpose Unsqueeze Where
"""
LISTED = frozenset(_LISTED.split())
"""REQ-OP-000, without Dense, FullyConnected, Padding and ConvTransposeDeconvolution, which are no ONNX operators."""

_WRITTEN = """
Acos Add ArgMax BatchNormalization Clip Concat Conv ConvInteger DequantizeLinear Div Exp Flatten
Gemm LSTM LeakyRelu Log MatMul Max MaxPool Mul Neg Pow QuantizeLinear Range Relu Reshape Sigmoid Sin
Slice Softmax Sqrt Sub Tanh Unsqueeze Where
"""
WRITTEN = frozenset(_WRITTEN.split())
"""Operators with a specification in words; an empty frame (Pad) is none."""

VERSIONS = {
    "Conv": 22,
    "MaxPool": 22,
    "Clip": 13,
    "Softmax": 13,
    "BatchNormalization": 15,
    "Pow": 15,
    "Where": 16,
    "Reshape": 25,
    "Flatten": 25,
}
"""The ONNX version that the first lines of these texts name."""

CAVEAT = (
    f"Findings are against the texts of the working group SONNX as of the commits named with each rule, read {READ}.",
    "No version of the profile has been released. This is not the working group's tool.",
    "No finding is not compliance.",
)
