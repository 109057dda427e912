"""Test helpers live beside the tests that use them."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOMS = "laws graph engines interop check rounding properties proof bounds hunt attacks cli same scale safety verified"
for name in ROOMS.split():
    sys.path.insert(0, str(HERE / name))
sys.path.insert(0, str(HERE))


def pytest_runtest_logreport(report) -> None:
    """A failure is named at once: a run that is ended from outside prints no summary."""
    if report.failed:
        print(f"\nFAILED {report.nodeid}", file=sys.__stderr__, flush=True)
