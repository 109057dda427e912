"""What must be trusted, alone in a room: certificates, their exact replay, and the check.

Certificate    the bytes of a proof
check          replay it: what is proven, of which network, on which box, for which executions
ReplayError    why it proves nothing
"""

from importlib import import_module
from typing import Any

HOME = {"Certificate": "api", "check": "api", "Checked": "files.certificate", "ReplayError": "base.rationals"}


def __getattr__(name: str) -> Any:
    """Late: `specgrad.bounds` reads sentences about executions here, and does without python-flint."""
    if name not in HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{HOME[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(HOME)
