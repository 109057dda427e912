"""Log lines of a command on stderr, as text or as JSON lines."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Annotated

import typer

LEVELS = ("debug", "info", "warning", "error")
LogLevel = Annotated[
    str | None, typer.Option("--log-level", help="Log lines on stderr: debug, info, warning, error; default: warnings.")
]
LogJson = Annotated[bool, typer.Option("--log-json", help="Log lines are JSON: time, level, logger, message, shard.")]


class JsonLines(logging.Formatter):
    """Formats a log record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as JSON: time, level, logger and message, and shard where it is about one."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        data = {"time": time, "level": record.levelname.lower(), "logger": record.name, "message": record.getMessage()}
        return json.dumps(data | ({"shard": record.shard} if hasattr(record, "shard") else {}))


def start_logging(level: str | None, as_json: bool) -> None:
    """Write the log lines of specgrad from a level on to stderr; BadParameter for an unknown level.

    Without either option, logging stays as it is: warnings come out on stderr.
    """
    if level is not None and level not in LEVELS:
        raise typer.BadParameter(f"--log-level must be one of {', '.join(LEVELS)}; got {level!r:.40}")
    if level is None and not as_json:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if as_json else logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.getLogger("specgrad")
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel((level or "warning").upper())
