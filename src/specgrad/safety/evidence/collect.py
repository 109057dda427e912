"""All items of one model, in the order of the page."""

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
    model: str | Path, recorded: Mapping[str, Any], *, files: Mapping[str, Path] | None = None, **asked: Any
) -> Evidence:
    """Ask everything that was given data for; say what was not asked.

    model      an .onnx file
    recorded   what the target computed: inputs and other values, by their names in the file
    files      other files that were read, for their digests
    asked      data=, decision=, axis=, box=, certificates=, accept=, of=, seconds=, progress= (questions.Asked)
    """
    need("onnx", "evidence needs")
    need("torch", "evidence needs")
    given = EvidenceRequest(Path(model), recorded, **asked)
    steps = [checks.model, checks.profiled, checks.layers, checks.outputs, checks.decisions]
    items = []
    for k, step in enumerate([*steps, checks.box]):
        if given.progress is not None:
            given.progress(step.__name__, k, len(steps) + 2)
        items.append(step(given))
    items += checks.certificates(given)
    read = {"model": Path(model), **(files or {})}
    for certificate, statement in given.certificates:
        read |= {certificate.name: certificate, statement.name: statement}
    digests = {name: digest for label, path in read.items() for name, digest in _digests(label, path)}
    return Evidence(Path(model).name, digests, tuple(map(_with_exclusion, items)), _versions())


def _with_exclusion(item: Item) -> Item:
    """What is proven of a class says in its answer which executions of this model are not in it."""
    if item.tone != "good" or "choices" not in item.deployment:
        return item
    return replace(item, answer=f"{item.answer} But {item.deployment['choices']}.")


def _digests(label: str, path: Path) -> list[tuple[str, str]]:
    """SHA-256, as sha256sum prints it; of a folder, file by file."""
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    return [(f"{label}: {p.name}", hashlib.sha256(p.read_bytes()).hexdigest()) for p in files]


def _versions() -> dict[str, str]:
    known = {"Python": platform.python_version(), "system": f"{platform.system()} {platform.machine()}"}
    for package in PACKAGES:
        try:
            known[package] = version(package)
        except PackageNotFoundError:
            continue
    return known
