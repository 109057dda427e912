"""One process for ONNX's own code, shared by the tests of a worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from specgrad.process import Process


@pytest.fixture(scope="session")
def shared() -> Iterator[Process]:
    with Process(seconds=300) as process:
        yield process
