"""Test helpers live beside the tests that use them."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
for name in ("laws", "engines", "interop", "check", "rounding", "bounds", "hunt", "attacks"):
    sys.path.insert(0, str(HERE / name))
sys.path.insert(0, str(HERE))
