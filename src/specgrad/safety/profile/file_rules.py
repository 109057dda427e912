"""Profile rules about the file: validity, versions, parameters, documentation, integrity."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
from onnx import TensorProto

from ...errors import SpecgradError
from ...interop.onnx.file import BYTE_BUDGET, DTYPES, ByteBudget, shown, tensor
from .digests import SUFFIX, differences
from .model_view import FILE, ONNX_DOMAINS, Location, ModelView
from .rule import Spot, rule
from .sources import CONV, ISSUES, NEEDS, REQS, VERSIONS, spec

WRITES = "--normalise writes it"
ALLOWED = {TensorProto.FLOAT16, TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.BOOL, TensorProto.STRING}
ALLOWED |= {TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64}
ALLOWED |= {TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64}
PINS = "--normalise writes one opset in which every version is that of its text"


@rule("S1", "E", "REQ-FO-000", REQS, says="A SONNX model is a valid ONNX model.")
def valid(view: ModelView) -> Iterator[Spot]:
    """Yield a spot if onnx.checker rejects the file (S1)."""
    result = view.onnx_result
    if result.ended is not None:
        yield Spot(f"onnx.checker gave no answer: {result.ended}", undecided=True)
    if result.checker is not None:
        yield Spot(f"onnx.checker with full_check says: {result.checker}")


@rule(
    "S19",
    "E",
    "REQ-FO-020; need THAV-001",
    REQS,
    NEEDS,
    says="The version of every operator is unambiguous: the ONNX operators are imported once, no other domain is, and "
    "the version in force is the one that the operator's text is about.",
    cure=PINS,
)
def versions(view: ModelView) -> Iterator[Spot]:
    """Yield where an operator's version is ambiguous or not the one of its text (S19)."""
    imports = [o for o in view.expanded.opset_import if o.domain in ONNX_DOMAINS]
    if len(imports) != 1:
        yield Spot(f"the ONNX operators are imported {len(imports)} times", cure="")
    expanded = {domain for domain, _ in view.functions} - {n.proto.domain for n in view.nodes}
    for domain in sorted({o.domain for o in view.expanded.opset_import} - set(ONNX_DOMAINS) - expanded):
        yield Spot(f"another domain is imported: {shown(domain)}", cure="")
    for node in view.of(*VERSIONS):
        wanted = VERSIONS[node.operator]
        if node.schema is not None and node.schema.since_version != wanted:
            here = node.schema.since_version
            yield Spot(f"version {here} of {node.operator} is in force; its text is about version {wanted}", node.at())


@rule(
    "S20",
    "E",
    "REQ-FO-030; issues 1.9",
    REQS,
    ISSUES,
    says="Parameters are stored without loss: every one can be read to the bit, and external data is there. NaN, "
    "infinities and subnormal numbers among them are listed.",
)
def parameters(view: ModelView) -> Iterator[Spot]:
    """Yield a spot for each of the parameters that cannot be read, or hold NaN, infinities or subnormal numbers
    (S20).
    """
    budget = ByteBudget(BYTE_BUDGET)
    for name, proto in view.initializers.items():
        if proto.data_type not in DTYPES:
            continue  # S14 reports it
        try:
            array = tensor(proto, view.folder, budget)
        except SpecgradError as error:
            yield Spot(str(error).removeprefix("from_onnx: "), Location(value=name))
            continue
        if special := special_values(array):
            yield Spot(f"holds {special}", Location(value=name), undecided=True, cure="see that they are meant")


def special_values(array: np.ndarray) -> str:
    """Return how many NaN, infinite and subnormal numbers an array has, as text; "" if none.

    >>> special_values(np.float32([1, np.inf, 1e-40, 0]))
    '1 infinite, 1 subnormal'
    """
    if array.dtype.kind != "f":
        return ""
    small = (array != 0) & (np.abs(array) < np.finfo(array.dtype).tiny)
    counts = {"NaN": np.isnan(array).sum(), "infinite": np.isinf(array).sum(), "subnormal": small.sum()}
    return ", ".join(f"{n} {what}" for what, n in counts.items() if n)


@rule(
    "S21",
    "W",
    "REQ-FO-040",
    REQS,
    CONV,
    says="Inputs and outputs are documented: a doc_string, a denotation of the type, and one of every axis.",
)
def documented(view: ModelView) -> Iterator[Spot]:
    """Yield a spot for each of the inputs and outputs without doc_string or denotations (S21)."""
    for info in (*view.inputs, *view.graph.output):
        dims = info.type.tensor_type.shape.dim
        lacking = {
            "doc_string": bool(info.doc_string),
            "type denotation": bool(info.type.denotation),
            "axis denotations": all(d.denotation for d in dims),
        }
        if absent := [what for what, there in lacking.items() if not there]:
            yield Spot(f"has no {', no '.join(absent)}", Location(value=str(info.name)))


def _has_metadata(view: ModelView, *words: str) -> bool:
    """Return whether a metadata key contains one of these words; the texts name no key."""
    keys = [str(p.key).lower() for p in view.model.metadata_props if p.value]
    return any(word in key for key in keys for word in words)


@rule(
    "S22",
    "W",
    "REQ-FO-050; need AI-003; issues 1.1",
    REQS,
    NEEDS,
    ISSUES,
    says="The order of execution and the target are stated: a metadata key with the word order, and one with target.",
)
def deployment(view: ModelView) -> Iterator[Spot]:
    """Yield a spot if no metadata states the order of execution or the target (S22)."""
    for word in ("order", "target"):
        if not _has_metadata(view, word):
            yield Spot(f"no key of metadata_props states the {word}")


@rule(
    "S23",
    "W",
    "need AI-004; REQ-FO-012, REQ-FO-013 (to be discussed)",
    NEEDS,
    REQS,
    says="The model is traceable to requirements, to the training model and to its environment by metadata; nodes have "
    "names, and each its own.",
)
def traceable(view: ModelView) -> Iterator[Spot]:
    """Yield missing references to requirements, training and environment, and nodes without a unique name (S23)."""
    for word in ("requirement", "training", "environment"):
        if not _has_metadata(view, word):
            yield Spot(f"no key of metadata_props refers to the {word}")
    uses = Counter(str(n.proto.name) for n in view.nodes)
    for node in view.nodes:
        name = str(node.proto.name)
        if not name or uses[name] > 1:
            text = f"its name is that of {uses[name]} nodes" if name else "the node has no name"
            yield Spot(text, node.at(), cure=WRITES)


@rule(
    "S24",
    "E",
    "need AI-006",
    NEEDS,
    says="Integrity: a side file holds the SHA-256 of the file and of every tensor, and they are those of the model.",
    cure=f"--normalise writes one; `--digests FILE` names another than MODEL{SUFFIX}",
)
def integrity(view: ModelView) -> Iterator[Spot]:
    """Yield where file and tensors differ from the digests of the side file (S24)."""
    if view.digests is None:
        yield Spot("there is no side file with digests")
        return
    for name, text in differences(view.digests, view.model, view.folder, view.path):
        yield Spot(
            text, Location(value=name) if name else FILE, cure="this is not the model that the side file is about"
        )


@rule(
    "S4",
    "E",
    "REQ-OP-020; batch_normalization R1",
    REQS,
    spec("batchnormalization"),
    says="Inference only: no training_info, and training_mode is 0.",
)
def inference_only(view: ModelView) -> Iterator[Spot]:
    """Yield training information and training modes (S4)."""
    if len(view.model.training_info):
        yield Spot("the file has training_info")
    for node in view.of("BatchNormalization"):
        if node.attributes.get("training_mode", 0) != 0:
            yield Spot("training_mode is not 0", node.at())
