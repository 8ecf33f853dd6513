"""Errors of the jobs: each says whose fault it is and what to do; all mean *not verified*, never *different*."""

from __future__ import annotations


class JobError(Exception):
    """A job that cannot give its answer.

    Args:
        message: what is wrong, naming the thing.
        remedy: what the reader of the message does about it.
    """

    def __init__(self, message: str, *, remedy: str) -> None:
        super().__init__(f"{message}; {remedy}")
        self.message = message
        self.remedy = remedy


class SourceUnreadable(JobError):
    """PostgreSQL does not answer, refuses a right, or no longer holds the snapshot."""


class TopicUnreadable(JobError):
    """Kafka does not answer, a topic is missing, or it holds what is not of the topic contract."""


class NotCaughtUp(JobError):
    """The bridge did not publish in time what the comparison must include."""


class TopicChanged(JobError):
    """A topic is another one of its name, or lost records: what was read of it before says nothing of it now."""


class PastErased(JobError):
    """Compaction or retention has already removed the state that was asked for."""
