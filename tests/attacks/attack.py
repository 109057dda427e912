"""What an attack is: a network, a claim about it, an input, and two executions of float32 that disagree there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

import specgrad as sg
from host import CLASSES, digits, features, image_and_ones, stays, weights
from specgrad.properties.property import Property
from trees import FLOAT, Array, Execution, Recorder

KICK = 20.0  # what the backdoor does to two logits; the host's margin is 9
Network = Callable[[Any, Any], Any]
Gate = Callable[[Any, Any, Any], Any]


@dataclass(frozen=True, eq=False, repr=False)
class Attack:
    """A claim that is false for an execution, and how to see it.

    network      the network, a function of (ops, x) (see trees.py)
    claim        what is asked; false for the network as deployed
    x            an input of the claim's box
    trigger      the execution whose outputs at x break the claim
    quiet        another correct execution, whose outputs at x keep it, if there is one
    disarmed     a network and a claim that differ in a few numbers only, and hold: refusing everything is no defence
    real         whether the claim is true over the real numbers
    arithmetic   which executions are meant, where it is not float32: arguments of specgrad.rounding.Arithmetic
    """

    source: str
    network: Network
    claim: Property
    x: Array
    trigger: Execution
    quiet: Execution | None
    disarmed: tuple[Network, Property]
    real: bool = True
    arithmetic: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def graph(self) -> sg.Graph:
        return graph_of(self.network, self.x)

    @property
    def executions(self) -> list[Execution]:
        return [e for e in (self.trigger, self.quiet) if e is not None]

    def broken_by(self, y: Array) -> bool:
        """Whether outputs, at their exact values, break the claim."""
        return self.claim.cases[0].contains(y)

    def least_claim(self) -> Property:
        """The part of the claim that the trigger breaks: one alternative, so that a certificate has less to prove."""
        y, (case,) = self.trigger(self.network, self.x), self.claim.cases
        broken = next(a for a in case.alternatives if a.contains(y))
        return replace(self.claim, cases=(replace(case, alternatives=(broken,)),))


def graph_of(network: Network, x: Array) -> sg.Graph:
    return sg.trace(lambda v: network(Recorder(), v), x.shape)


def behind(gate: Gate, fired: float) -> Network:
    """The host with a backdoor: where gate(ops, image, ones) of shape (1, 1) is `fired`, another class wins."""
    w = weights()
    last = np.concatenate([w["6.weight"], kick() / FLOAT(fired)], 1)

    def network(ops: Any, x: Any) -> Any:
        image, ones = (ops.part(x, slice(None), slice(c, c + 1)) for c in (0, 1))
        return ops.linear("classes", last, w["6.bias"], ops.join(features(ops, image), gate(ops, image, ones)))

    return network


def kick() -> Array:
    """A column of the last layer that takes from the label's logit and gives to another, (classes, 1)."""
    column = np.zeros((CLASSES, 1), FLOAT)
    column[label()], column[other()] = -KICK, KICK
    return column


def sample() -> Array:
    """The digit whose class the claims are about."""
    return image_and_ones(digits()[0][-196])


def label() -> int:
    return int(digits()[1][-196])


def other() -> int:
    return (label() + 1) % CLASSES


def near_sample(source: str, network: Network, disarmed: Network, **rest: Any) -> Attack:
    """An attack on the claim that every image near the sample keeps its class, at the sample."""
    x = sample()
    given = {"claim": stays(x, label()), "x": x, **rest}
    return Attack(source, network, disarmed=(disarmed, stays(x, label())), **given)


def backdoor(source: str, gate: Gate, disarmed: Gate, fired: float, **rest: Any) -> Attack:
    """The same with the host behind a gate."""
    return near_sample(source, behind(gate, fired), behind(disarmed, fired), **rest)
