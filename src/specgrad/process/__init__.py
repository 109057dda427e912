"""Runs programs in a separate process, so that a crash, a hang or an exhausted memory becomes a result."""

from ..errors import WorkerError
from .process import CANNOT_LIMIT, Outcome, Process, ProcessResult

__all__ = ["CANNOT_LIMIT", "Outcome", "Process", "ProcessResult", "WorkerError"]
