"""Errors of the jobs. Each says whose fault it is and what to do; all mean *not verified*, never *different*."""

from __future__ import annotations


class JobError(Exception):
    """Raised when a job cannot give an answer.

    Args:
        message: what is wrong, with the name of the object.
        remedy: what the reader of the message should do about it.
    """

    def __init__(self, message: str, *, remedy: str) -> None:
        super().__init__(f"{message}; {remedy}")
        self.message = message
        self.remedy = remedy


class SourceUnreadable(JobError):
    """PostgreSQL does not answer, denies a permission, or no longer holds the snapshot."""


class TopicUnreadable(JobError):
    """Kafka does not answer, a topic is missing, or a record in it breaks the topic contract."""


class NotCaughtUp(JobError):
    """The bridge has not published everything that the answer must include, or not in time."""


class TopicChanged(JobError):
    """A topic was recreated or lost records, so what was read from it before says nothing about it now."""


class PastErased(JobError):
    """Compaction or retention may already have removed the state that was asked for."""
