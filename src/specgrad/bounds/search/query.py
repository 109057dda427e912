"""A VNN-LIB query about one network or several, each known by the name that the query declares."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .certify import CertifyResult, Progress, certify


def certify_query(
    property_path: str | Path,
    networks: Mapping[str, Any],
    *,
    seconds: float = 60.0,
    arithmetic: Any = None,
    progress: Progress | None = None,
) -> CertifyResult:
    """Return the verdict on a VNN-LIB query; "holds" is the competition's unsat.

    ContradictionError if a proof and a counterexample meet.

    property_path   a VNN-LIB file, 1.0 or 2.0
    seconds         of the whole search
    networks        name of a network in the query -> an ONNX file or a Graph; where the query declares one network
                    alone, or is VNN-LIB 1.0, which names none, the name may be any
    arithmetic      the executions to prove it for; None: float32, fused
    progress        is told (what, done, total) along the way
    """
    return certify(dict(networks), Path(property_path), seconds=seconds, arithmetic=arithmetic, progress=progress)
