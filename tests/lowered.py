"""Thresholds that choose an algorithm by size, lowered: what is made for large networks runs on small ones."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import Any

import pytest


def lower(monkeypatch: pytest.MonkeyPatch, values: Mapping[str, Any]) -> None:
    """Sets constants, "bounds.linear.intermediate.tighten:MAX_OBJECTIVE_CELLS" and alike, in their module and wherever
    they were imported to."""
    for place, value in values.items():
        path, _, name = place.partition(":")
        old = getattr(importlib.import_module(f"specgrad.{path}"), name)
        for key, module in list(sys.modules.items()):
            if key.startswith("specgrad.") and getattr(module, name, None) is old:
                monkeypatch.setattr(module, name, value)
