"""Doctests know NumPy as np."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def _numpy_in_doctests(doctest_namespace: dict[str, Any]) -> None:
    doctest_namespace["np"] = np
