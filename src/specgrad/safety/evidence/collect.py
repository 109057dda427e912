"""Collects the evidence about one model: runs all checks, in the order of the page."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from specgrad.errors import need

from . import checks
from .checks import EvidenceRequest
from .item import Evidence, Item

PACKAGES = ("specgrad", "numpy", "onnx", "python-flint", "safetensors", "torch")


def gather(
    model: str | Path, recorded: Mapping[str, Any], *, files: Mapping[str, Path] | None = None, **options: Any
) -> Evidence:
    """Run every check that data were given for, and list those that were not asked.

    model      an .onnx file
    recorded   what the target computed: inputs and other values, by their names in the file
    files      other files that were read, for their digests
    options    data=, decision=, axis=, box=, certificates=, accept=, of=, seconds=, progress= (EvidenceRequest)
    """
    need("onnx", "evidence needs")
    need("torch", "evidence needs")
    request = EvidenceRequest(Path(model), recorded, **options)
    steps = [checks.model, checks.profiled, checks.layers, checks.outputs, checks.decisions]
    items = []
    for k, step in enumerate([*steps, checks.box]):
        if request.progress is not None:
            request.progress(step.__name__, k, len(steps) + 2)
        items.append(step(request))
    items += checks.certificates(request)
    read = {"model": Path(model), **(files or {})}
    for certificate, statement in request.certificates:
        read |= {certificate.name: certificate, statement.name: statement}
    digests = {name: digest for label, path in read.items() for name, digest in _digests(label, path)}
    return Evidence(Path(model).name, digests, tuple(map(_with_exclusion, items)), _versions())


def _with_exclusion(item: Item) -> Item:
    """Return the item; if it is good, its answer also names the executions of this model that are outside the class."""
    if item.tone != "good" or "choices" not in item.deployment:
        return item
    return replace(item, answer=f"{item.answer} But {item.deployment['choices']}.")


def _digests(label: str, path: Path) -> list[tuple[str, str]]:
    """Return (label and name, SHA-256) of a file, or of every file in a folder."""
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    return [(f"{label}: {p.name}", hashlib.sha256(p.read_bytes()).hexdigest()) for p in files]


def _versions() -> dict[str, str]:
    """Return versions of Python, the system and the packages."""
    known = {"Python": platform.python_version(), "system": f"{platform.system()} {platform.machine()}"}
    for package in PACKAGES:
        try:
            known[package] = version(package)
        except PackageNotFoundError:
            continue
    return known
