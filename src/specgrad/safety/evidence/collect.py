"""Collects the evidence about one model: runs all checks, in the order of the page."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from specgrad.bounded_files import file_digest, read_bytes
from specgrad.check.models.recorded import Recorded
from specgrad.deadline import check_time
from specgrad.errors import TimeLimitError, need
from specgrad.interop.model import Model

from . import checks
from .checks import EvidenceRequest
from .item import Evidence, Item

PACKAGES = ("specgrad", "numpy", "onnx", "python-flint", "safetensors", "torch")


def gather(model: Any, recorded: Recorded, *, files: Mapping[str, Path] | None = None, **options: Any) -> Evidence:
    """Run every check that data were given for, and list those that were not asked.

    MissingPackageError without onnx.

    model      an .onnx file: a path, its bytes, a ModelProto
    recorded   what the target computed: inputs and other values, by their names in the file, or a recording
    files      other files that were read, for their digests
    options    data=, decision=, axis=, box=, certificates=, accept=, of=, seconds=, progress= (EvidenceRequest)
    """
    need("onnx", "evidence needs")
    need("torch", "evidence needs")
    request = EvidenceRequest(model, recorded, **options)
    steps = [checks.model, checks.profiled, checks.layers, checks.outputs, checks.decisions]
    items = []
    for k, step in enumerate([*steps, checks.box]):
        if request.progress is not None:
            request.progress(step.__name__, k, len(steps) + 2)
        items.append(_answer_in_time(step, request))
    items += checks.certificates(request)
    given, read = request.given, dict(files or {})
    for certificate, statement in request.certificates:
        read |= {certificate.name: certificate, statement.name: statement}
    digests = {f"model: {given.title}": _sha256(_model_bytes(given))}
    digests |= {f"{label}: {p.name}": file_digest(p) for label, path in read.items() for p in _files_in(path)}
    return Evidence(given.title, digests, tuple(map(_with_exclusion, items)), _package_versions())


def _answer_in_time(step: Callable[[EvidenceRequest], Item], request: EvidenceRequest) -> Item:
    """Return the answer of one check `step` to the request; "cannot tell" if the time is over."""
    try:
        check_time("evidence")
        return step(request)
    except TimeLimitError:
        return Item(step.__name__, str(step.__doc__), "cannot tell", "Out of time.", "tolerance")


def _with_exclusion(item: Item) -> Item:
    """Return the item; if it is good, its answer also names the executions of this model that are outside the class."""
    if item.tone != "good" or "choices" not in item.deployment:
        return item
    return replace(item, answer=f"{item.answer} But {item.deployment['choices']}.")


def _model_bytes(model: Model) -> bytes:
    """Return the bytes of the file that a model was given as."""
    source = model.source
    if isinstance(source, str | Path):
        return bytes(read_bytes(source))
    return source if isinstance(source, bytes) else bytes(source.SerializeToString())


def _files_in(path: Path) -> list[Path]:
    """Return a file, or every file in a folder."""
    return sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]


def _sha256(data: bytes) -> str:
    """Return the SHA-256 of `data`, in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def _package_versions() -> dict[str, str]:
    """Return versions of Python, the system and the packages."""
    known = {"Python": platform.python_version(), "system": f"{platform.system()} {platform.machine()}"}
    for package in PACKAGES:
        try:
            known[package] = version(package)
        except PackageNotFoundError:
            continue
    return known
