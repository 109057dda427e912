"""Counterexamples are run by ONNX Runtime in workers that earlier tests have started (tests/kept_workers.py)."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _kept(kept_workers: None) -> None: ...
