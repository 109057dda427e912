"""All attacks, and the questions that are asked of each; benchmarks/attacks.py prints the answers as a table."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

import detectors
import inputs
import merges
import trained
from attack import Attack, graph_of
from specgrad.bounds import Bounds, Box, CertifyResult, certify, crown
from specgrad.rounding import Arithmetic

BUILDERS = {**detectors.ATTACKS, **merges.ATTACKS, **inputs.ATTACKS, **trained.ATTACKS}


@cache
def attack_named(name: str) -> Attack:
    return BUILDERS[name]()


def arithmetic(attack: Attack, **changes: Any) -> dict[str, Any]:
    """Arguments that name the executions which an attack is about."""
    return {"arithmetic": Arithmetic(**{**attack.arithmetic, **changes})}


def verdict(attack: Attack, *, seconds: float, disarmed: bool = False, **changes: Any) -> CertifyResult:
    """What certify says of the claim, for all executions that the attack is about."""
    network, claim = attack.disarmed if disarmed else (attack.network, attack.claim)
    return certify(graph_of(network, attack.x), claim, seconds=seconds, **arithmetic(attack, **changes))


def bounds_at_the_input(attack: Attack, *, deployed: bool = True) -> Bounds:
    """What crown proves of the outputs at the attack's own input, for all executions, or for exact arithmetic."""
    x = attack.x.astype(float)
    options = arithmetic(attack) if deployed else {"deployed": False}
    return crown(attack.graph, Box(x, x), **options)


def holds_over_the_reals(attack: Attack) -> bool:
    """Whether linear bounds for exact arithmetic prove the claim: what a verifier of the real network can say."""
    (case,) = attack.claim.cases
    low, high = (end.reshape(attack.x.shape) for end in case.outer())
    rows = np.concatenate([a.rows for a in case.alternatives])
    limits = [float(limit) for a in case.alternatives for limit in a.limits]
    found = crown(attack.graph, Box(low, high), objective=rows, deployed=False).objective
    return bool(found is not None and (found.low > limits).all())
