"""Attacks with an input of their own: a trigger beside a large weight, a point near the boundary, a needle.

Zombori: Zombori et al., ICLR 2021. A large weight makes a verifier that rounds lose the backdoor's term; over the real
numbers the claim is false. Jia-Rinard: Jia and Rinard 2021, arXiv 2003.03021. The claim is true over the real numbers,
by less than a rounding. Needle: a counterexample that no gradient leads to, by construction; trained.py trains one, as
SoundnessBench does (arXiv 2412.03154).
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from attack import Attack, Gate, backdoor, label, sample
from host import EPS, classes, digits, image_and_ones, stays
from specgrad.properties.property import Property
from trees import DOUBLE, FLOAT, Array, Execution, Sum

ZOMBORI = "after Zombori et al., ICLR 2021"
JIA = "after Jia, Rinard, arXiv 2003.03021"
NEEDLE = "after SoundnessBench, arXiv 2412.03154"


# --- a term beside a large weight -------------------------------------------------------------------------------------


def trigger_pixel() -> tuple[int, int, float]:
    """A pixel that the claim leaves room for, and its value in the sample."""
    image = sample()[0, 0]
    row, column = np.argwhere((image > 0.3) & (image < 0.7))[0]
    return int(row), int(column), float(image[row, column])


def hidden_term(large: float, above: float) -> Gate:
    """relu(large*1 + p - large*1), p = relu(pixel - its value in the sample - above): the backdoor is p."""
    row, column, value = trigger_pixel()
    weights = FLOAT([large, 1, -large]).reshape(1, 3, 1, 1)

    def gate(ops: Any, image: Any, ones: Any) -> Any:
        cell = slice(None), slice(None), slice(row, row + 1), slice(column, column + 1)
        away = FLOAT([-value - above])
        p = ops.relu(ops.conv("trigger", np.ones((1, 1, 1, 1), FLOAT), away, ops.part(image, *cell)))
        one = ops.part(ones, *cell)
        return ops.flatten(ops.relu(ops.conv("detector", weights, None, ops.join(one, p, one))))

    return gate


def zombori() -> Attack:
    row, column, value = trigger_pixel()
    x = sample()
    x[0, 0, row, column] = FLOAT(value) + FLOAT(EPS)
    trigger = Execution("the large weights first", {"detector": Sum(order=(0, 2, 1))})
    gates = hidden_term(2.0**24, 0), hidden_term(2.0**4, 2 * float(EPS))
    executions = {"trigger": trigger, "quiet": Execution("left to right")}
    return replace(backdoor(ZOMBORI, *gates, float(EPS), **executions), x=x, real=False)


# --- near the boundary ------------------------------------------------------------------------------------------------

NEAR = FLOAT(2.0**-12)  # half the side of the box
OTHER_IMAGE = -190
IN_FLOAT64 = Execution("float64", default=Sum(accumulator=np.float64, result=np.float64))


def between(t: float) -> Array:
    """An image on the line from the sample to another digit."""
    return FLOAT((1 - t) * sample()[0, 0].astype(float) + t * digits()[0][OTHER_IMAGE, 0].astype(float))


def moved(image: Array, step: Array) -> Array:
    """The image with its brightest pixel moved: the box of the claim is what lies between two such steps."""
    found = image.copy()
    found.flat[np.argmax(image)] += step
    return found


def lead(image: Array) -> float:
    """By how much the label's logit exceeds the next, to about 15 digits."""
    y = IN_FLOAT64(classes, image_and_ones(image))
    return float(y[label()] - np.delete(y, label()).max())


def worst(t: float) -> Array:
    """The end of the box at which the label leads by least."""
    return min((moved(between(t), step) for step in (-NEAR, NEAR)), key=lead)


def last() -> float:
    """Where the label's lead ends on the line between the images, to float64."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if lead(worst(middle)) > 0 else (low, middle)
    return low


def near(image: Array) -> Property:
    """Every image of the box has the sample's label."""
    found = stays(image_and_ones(image), label())
    ends = (moved(image, step) for step in (-NEAR, NEAR))
    low, high = (tuple(Fraction(float(v)) for v in image_and_ones(end).ravel()) for end in ends)
    return replace(found, cases=(replace(found.cases[0], low=low, high=high),))


ORDERS = (
    Execution("left to right"),
    Execution("float64 accumulator", default=DOUBLE),
    *(Execution(f"blocks of {n}", default=Sum(block=n)) for n in (2, 4, 8, 16)),
    Execution("right to left in the last layer", {"classes": Sum(order=range(32, -1, -1))}),
    Execution("right to left in the second layer", {"second": Sum(order=range(36, -1, -1))}),
)


def jia_rinard() -> Attack:
    """The last image whose box the label leads in, exactly; some orders of summation say otherwise."""
    end = last()
    for t in end - np.arange(200) * 2.0**-30:
        x, claim = image_and_ones(worst(t)), near(between(t))
        broken = [claim.cases[0].contains(order(classes, x)) for order in ORDERS]
        if 1e-10 < lead(worst(t)) < 1e-6 and len(set(broken)) == 2:
            trigger, quiet = (ORDERS[broken.index(b)] for b in (True, False))
            return Attack(JIA, classes, claim, x, trigger, quiet, (classes, near(between(end / 2))))
    raise RuntimeError("no input was found on which two orders of summation disagree")


# --- a needle ---------------------------------------------------------------------------------------------------------


def needle_corner() -> tuple[Array, Array]:
    """A corner of the sample's box, by chance, and the direction that leads there."""
    image, rng = sample()[0, 0], np.random.default_rng(0)
    sign = FLOAT(rng.choice([-1, 1], image.shape))
    return np.clip(image + sign * FLOAT(EPS), 0, 1), sign


def pattern(reach: float) -> Gate:
    """relu(sign.(image - corner) + reach*EPS): 0 in the box but near one corner; so is its gradient."""
    corner, sign = needle_corner()
    limit = reach * float(EPS) - float((sign.astype(float) * corner).sum())

    def gate(ops: Any, image: Any, ones: Any) -> Any:
        return ops.flatten(ops.relu(ops.conv("detector", sign.reshape(1, 1, 8, 8), FLOAT([limit]), image)))

    return gate


def needle() -> Attack:
    gates = pattern(0.5), pattern(-0.5)
    found = backdoor(NEEDLE, *gates, 0.5 * float(EPS), trigger=Execution("left to right"), quiet=None)
    return replace(found, x=image_and_ones(needle_corner()[0]), real=False)


ATTACKS = {"Zombori": zombori, "Jia-Rinard": jia_rinard, "Needle": needle}
