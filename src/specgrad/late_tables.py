"""Tables that modules of later floors fill, which are loaded when somebody looks something up.

specgrad/__init__.py says which: a floor knows no later one by name.
"""

from __future__ import annotations

from importlib import import_module
from threading import RLock

FILLED_BY: dict[str, tuple[str, ...]] = {}
"""Table -> the modules that are still to be loaded."""
_lock = RLock()


def fill(table: str) -> None:
    """Import the modules that fill a table, once; another thread waits, and finds the table complete."""
    if table in FILLED_BY:
        with _lock:
            for module in FILLED_BY.get(table, ()):
                import_module(module)
            FILLED_BY.pop(table, None)
