"""Test helpers live beside the tests that use them."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
for folder in (HERE, HERE / "laws", HERE / "engines", HERE / "interop", HERE / "check", HERE / "bounds"):
    sys.path.insert(0, str(folder))
