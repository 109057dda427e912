"""A short text cannot ask for much memory or time; any text gives a property or a PropertyError."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import time

import pytest

from pace import stretched
from specgrad.properties.property import MAX_ROW_ENTRIES, PropertyError, robustness
from specgrad.properties.vnnlib import read_text

BOX = "(assert (and (<= X_0 1) (>= X_0 0)))"
ONE = "(declare-const X_0 Real) (declare-const Y_0 Real) (declare-const Y_1 Real) "


def wide(inputs: int, outputs: int) -> str:
    tensors = f"(declare-input X float32 [{inputs}]) (declare-output Y float32 [{outputs}])"
    return f"(vnnlib-version <2.0>) (declare-network N {tensors}) (assert (<= X[0] 1.0)) (assert (>= X[0] 0.0)) "


CHOICE = "(or (<= Y_0 1) (<= Y_1 2))"
BOMBS = {
    "wide outputs, many alternatives": wide(1, 1 << 24) + f"(assert (or {'(<= Y[0] 1.0) ' * 16}))",
    "wide outputs, one inequality": wide(1, 1 << 24) + "(assert (<= Y[0] 1.0))" * 4,
    "wide inputs": wide(1 << 24, 2) + "(assert (<= Y[0] 1.0))",
    "multiplied out": ONE + BOX + f"(assert {CHOICE})" * 40,
    "multiplied out, again and again": ONE + BOX + f"(assert (and {CHOICE * 17}))" * 20,
    "common inequalities in every alternative": ONE + BOX + "(assert (<= Y_0 1))" * 3000 + f"(assert {CHOICE})" * 17,
    "copied at every level": ONE + BOX + "(assert " + "(or " * 900 + f"(and {CHOICE * 16})" + ")" * 900 + ")",
    "a box per alternative": "".join(f"(declare-const X_{i} Real)" for i in range(2000))
    + ONE[ONE.index("(declare-const Y_0") :]
    + "".join(f"(assert (<= X_{i} 9)) (assert (>= X_{i} 0))" for i in range(2000))
    + "".join(f"(assert (or (<= X_{i} 1) (>= X_{i} 2)))" for i in range(14)),
}
MEASURE = """import sys, time, resource
from specgrad.properties.vnnlib import read_text
from specgrad.properties.vnnlib1 import PropertyError
text, began = sys.stdin.read(), time.monotonic()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    read_text(text)
    print("read")
except PropertyError as error:
    print("budget" if any(w in str(error) for w in ("inequalities", "coefficients", "bounds", "cells")) else error)
print(time.monotonic() - began, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="measures in Linux's units")
@pytest.mark.parametrize("name", BOMBS)
def test_a_short_text_takes_little_memory_and_time(name: str) -> None:
    if "2.0" in BOMBS[name]:
        pytest.importorskip("vnnlib")
    done = subprocess.run(
        [sys.executable, "-c", MEASURE], input=BOMBS[name], capture_output=True, text=True, check=True
    )
    verdict, *measured = done.stdout.splitlines()
    assert verdict == "budget"
    seconds, megabytes = measured[0].split()
    assert (float(seconds) < stretched(10), float(megabytes) < 700) == (True, True), done.stdout


def test_robustness_over_too_many_outputs_is_refused() -> None:
    outputs = int(MAX_ROW_ENTRIES**0.5) + 2
    with pytest.raises(PropertyError, match="have over 33554432 coefficients"):
        robustness([0.0], 0, 0.5, outputs)


def test_wide_outputs_with_few_inequalities_are_read() -> None:
    pytest.importorskip("vnnlib")
    found = read_text(wide(1, 100_000) + "(assert (or (<= Y[7] 1.0) (>= Y[99999] 2.0)))")
    assert found.outputs == 100_000
    assert [a.rows.nonzero()[1].tolist() for a in found.cases[0].alternatives] == [[7], [99999]]


# --- any text ---------------------------------------------------------------------------------------------------------

SEEDS = (
    ONE + BOX + "(assert (or (<= Y_0 Y_1) (and (<= (* 2.0 Y_0) (+ Y_1 1.5)) (>= Y_1 (- Y_0)))))",
    "(vnnlib-version <2.0>)\n(declare-network N (declare-input X float32 [1, 2]) (declare-output Y float32 [1, 3]))\n"
    "(assert (and (<= X[0,0] 0.5) (>= X[0,0] -0.5) (<= X[0,1] 0.5) (>= X[0,1] -0.5)))\n"
    "(assert (or (<= Y[0,0] Y[0,1]) (and (<= (* 2.0 Y[0,0]) (+ Y[0,2] 1.5)) (== Y[0,1] (- Y[0,0])))))",
)
WORDS = re.split(
    r"\s+",
    """( ) and or not assert declare-const X_0 Y_0 X_99 Y_1 Real Int <= >= == < + - * / 0 1 -1 1e400 1e-400 1e401
1e999999999 0x10 1/3 nan inf +5 . 1. 1_000 X_00 X_-1 |x| "s" [ ] X[0,0] X[9,9] X[-1] X[0.9] Y[1e9] 999999999999999999999
declare-network declare-input declare-output declare-hidden float32 float16 real int8 <2.0> vnnlib-version equal-to
isomorphic-to let [] [0] [16777217] [4294967297] [16777216] [2,-3]""",
)
WORDS += ["\0", "\x1b[2J", "é", ";c\n", "\u0661", "\u2028", "\r", "0" * 900 + "1", "9" * 2000]
TOKEN = re.compile(r"\s+|[()\[\],]|[^\s()\[\],]+")


def tree(rng: random.Random, depth: int = 0) -> str:
    if depth > 4 or rng.random() < 0.2:
        return rng.choice(WORDS)
    return "(" + " ".join(tree(rng, depth + 1) for _ in range(rng.randint(0, 4))) + ")"


def mutated(rng: random.Random) -> str:
    """A true text with a few tokens exchanged, removed, repeated or grown."""
    tokens = TOKEN.findall(rng.choice(SEEDS))
    for _ in range(rng.choice([0, 1, 1, 1, 2, 4])):
        i, j = rng.randrange(len(tokens)), rng.randrange(len(tokens))
        change = rng.randrange(6)
        if change == 0:
            tokens[i] = rng.choice(WORDS)
        elif change == 1:
            del tokens[i]
        elif change == 2:
            tokens.insert(i, rng.choice(WORDS))
        elif change == 3:
            tokens.insert(i, tree(rng))
        elif change == 4:
            tokens[i], tokens[j] = tokens[j], tokens[i]
        else:
            tokens[i:i] = tokens[i : i + rng.randint(1, 20)] * rng.choice([1, 1, 50])
    return "".join(tokens)


def fuzz(count: int, seed: int) -> tuple[int, int]:
    """How many texts were read and refused; anything but a PropertyError, or over 10 s, fails."""
    rng, read, refused = random.Random(seed), 0, 0
    for _ in range(count):
        text, began = mutated(rng), time.monotonic()
        try:
            for case in read_text(text).cases:
                case.outer(), case.nearest
            read += 1
        except PropertyError as error:
            refused += 1
            if len(str(error)) > 700 or not str(error).isprintable():
                pytest.fail(f"not one short line: {error}")
        except Exception as error:
            pytest.fail(f"{type(error).__name__}: {error}\n{text!r}")
        if time.monotonic() - began > 10:  # a long list of texts: the pace is asked for where it matters alone
            assert time.monotonic() - began < stretched(10), text
    return read, refused


def test_any_text_is_read_or_refused() -> None:
    pytest.importorskip("vnnlib")
    read, refused = fuzz(600, seed=12)
    assert read > 60
    assert refused > 200


@pytest.mark.slow
def test_many_more_texts_are_read_or_refused() -> None:
    pytest.importorskip("vnnlib")
    fuzz(50_000, seed=13)
