"""Programs in a process of their own: a runtime that crashes, hangs or eats the memory is an answer, not our end."""

from .process import CANNOT_LIMIT, Answer, Outcome, Process, WorkerError

__all__ = ["CANNOT_LIMIT", "Answer", "Outcome", "Process", "WorkerError"]
