"""Programs in a process of their own: a runtime that crashes, hangs or eats the memory is an answer, not our end."""

from .process import CANNOT_LIMIT, Outcome, Process, ProcessResult, WorkerError

__all__ = ["CANNOT_LIMIT", "Outcome", "Process", "ProcessResult", "WorkerError"]
