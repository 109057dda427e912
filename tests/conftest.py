"""Test helpers live beside the tests that use them."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

HERE = Path(__file__).parent
ROOMS = "laws graph engines interop check rounding properties proof bounds hunt attacks cli same scale safety verified"
for name in ROOMS.split():
    sys.path.insert(0, str(HERE / name))
sys.path.insert(0, str(HERE))


signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, by every process that a test starts too

# What hypothesis draws is the same in every run, as every other case is. Other draws belong to `.ci/slow`, which prints
# their seed; a test that fails there prints its example, which then becomes a test of its own.
settings.register_profile("fixed", derandomize=True, database=None)
settings.register_profile("fresh", derandomize=False, max_examples=2000, database=None, print_blob=True)
settings.load_profile(os.environ.get("SPECGRAD_DRAWS", "fixed"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Under `-n`, a room is one group (tests/rooms.py)."""
    from rooms import RoomScheduling

    return RoomScheduling(config, log)


def pytest_collection_finish() -> None:
    """What collecting has loaded stays: the collector need not look at it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


def pytest_runtest_logreport(report) -> None:
    """A failure is named at once: a run that is ended from outside prints no summary."""
    if report.failed:
        print(f"\nFAILED {report.nodeid}", file=sys.__stderr__, flush=True)


@pytest.fixture(scope="module")
def little_optimised() -> Iterator[None]:
    """XLA compiles programs that run once: LLVM need not optimise them where a test is about values alone."""
    import jax

    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture(scope="session")
def _kept_until_the_end() -> Iterator[None]:
    yield
    import kept_workers

    kept_workers.end_all()


@pytest.fixture
def kept_workers(_kept_until_the_end: None) -> Iterator[None]:
    """Audits and conformance runs ask the workers that earlier tests have started (tests/kept_workers.py)."""
    import kept_workers

    with kept_workers.keeping():
        yield
