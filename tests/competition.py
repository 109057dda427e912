"""Files of the verification competition: beside the checkout in ../shared, or where SPECGRAD_SHARED says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

SHARED = Path(os.environ.get("SPECGRAD_SHARED", Path(__file__).parents[2] / "shared")) / "vnncomp"
VERIVITAL = SHARED / "verivital"
needs_shared = pytest.mark.skipif(not SHARED.exists(), reason="neither ../shared nor SPECGRAD_SHARED has vnncomp/")
