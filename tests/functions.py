"""Functions of one cell, as the registry has them: a test of all of them lists none by name."""

from __future__ import annotations

import numpy as np

from specgrad.op import REGISTRY, Op, run_spec

FUNCTIONS = {name: op for name, op in REGISTRY.items() if op.curve is not None}


def _is_everywhere(op: Op) -> bool:
    """Whether it has no parameters, and values on both sides of 0."""
    return not op.param_names and bool(np.isfinite(run_spec(op, [np.array([-2.5, 0.0, 2.5])], {})).all())


EVERYWHERE = {name: op for name, op in FUNCTIONS.items() if _is_everywhere(op)}
SMOOTH = {name: op for name, op in EVERYWHERE.items() if op.curve is not None and op.curve.curvature is not None}
MEASURED = {name: op for name, op in FUNCTIONS.items() if op.errors is not None}
