"""A bucket, and a campaign, for tests."""

from __future__ import annotations

import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """A bucket of moto's server."""
    pytest.importorskip("moto")
    pytest.importorskip("obstore")
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    settings = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "tests",
        "AWS_SECRET_ACCESS_KEY": "tests",
        "AWS_REGION": "us-east-1",
    }
    before = dict(os.environ)
    os.environ.update(settings)
    try:
        request = urllib.request.Request(f"http://{host}:{port}/shards", method="PUT")
        urllib.request.urlopen(request).close()
        yield "s3://shards"
    finally:
        os.environ.clear()
        os.environ.update(before)
        server.stop()


@pytest.fixture
def proving(tmp_path: Path) -> Path:
    """A campaign of two networks and two properties."""
    from campaigns import proving_spec

    return proving_spec(tmp_path)
