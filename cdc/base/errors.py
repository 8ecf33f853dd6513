"""Every error this project raises on purpose: whose fault it is, and what to do about it.

``app.supervise`` decides by the class alone: a ``retryable`` error is tried again with back-off, any other stops
the process with ``exit_code``. An exception from outside this tree is a bug of ours and is never swallowed.
"""

from __future__ import annotations

from typing import Final

_FOREIGN_BYTES: Final = (
    "find out who else writes there (`cdc topics lint` for a topic); if nobody does, report it with the versions of "
    "PostgreSQL, Kafka and cdc"
)


_REMEDY: Final = "\n  remedy: "


def with_remedy(text: str, remedy: str) -> str:
    """Both as one text, as errors are printed, and as a reason is kept in a topic or in the replica."""
    return f"{text}{_REMEDY}{remedy}"


def remedy_apart(text: str) -> tuple[str, str]:
    """What ``with_remedy`` made one of; the remedy is empty where there is none."""
    told, _, remedy = text.partition(_REMEDY)
    return told, remedy


class CdcError(Exception):
    """Root of the tree.

    Args:
        message: names the object (table, topic, slot, file) and what is wrong with it.
        remedy: the command or change that mends it, for a person to copy; never empty. What mends itself says so, and
            what to do if it does not.
    """

    retryable = False
    exit_code = 1

    def __init__(self, message: str, *, remedy: str) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return with_remedy(self.message, self.remedy)


class ConfigError(CdcError):
    """The operator's configuration is wrong; nothing was touched."""

    exit_code = 2


class DecodeError(CdcError):
    """Bytes are not what their format allows: truncated, unknown or contradictory.

    Args:
        message, remedy: as for ``CdcError``. What reads the bytes knows only that somebody else wrote them.
    """

    def __init__(self, message: str, *, remedy: str = _FOREIGN_BYTES) -> None:
        super().__init__(message, remedy=remedy)


class EncodeError(CdcError):
    """A row cannot be carried as the topic contract demands. Stops the bridge: a row is never skipped."""

    exit_code = 3


class SourceUnavailable(CdcError):
    """PostgreSQL (source) cannot be reached, went away or is still busy with our old connection."""

    retryable = True
    exit_code = 4


class SourceBusy(SourceUnavailable):
    """PostgreSQL (source) broke a query off: a lock, a cancel, a lack of resources. The connection can be used on."""


class SourceLocked(SourceBusy):
    """Somebody holds a lock on a table of the source, for longer than we wait at a time. The message says who."""


class SourceAltered(SourceUnavailable):
    """A table, column or type of the source is not there as we knew it: look at it anew, or leave it.

    Retryable because a new look finds what there is now. Who reads rows for a change of the stream must catch it: what
    that change described cannot be read any more, however often it is tried.
    """


class SourceUndecodable(SourceUnavailable):
    """The server failed while it decoded its own WAL; whether that ever ends is known when it comes back.

    Args:
        message: see ``CdcError``.
        is_of_a_value: it is a value that could not be sent, and not the server's bookkeeping.
    """

    def __init__(self, message: str, *, is_of_a_value: bool = False) -> None:
        super().__init__(message, remedy="wait: the bridge tries again, and stops with what to do when it comes back")
        self.is_of_a_value = is_of_a_value


class SourceRefused(CdcError):
    """PostgreSQL (source) will not serve us until the operator changes something."""

    exit_code = 3


class GapError(SourceRefused):
    """Changes may be missing between the stored progress and what the slot can still deliver."""


class SpillError(CdcError):
    """The disk of this machine cannot hold the changes of a transaction that is still running."""

    exit_code = 3


class TopicUnavailable(CdcError):
    """Kafka cannot be reached, or a Kafka transaction had to be aborted; the work will be done again."""

    retryable = True
    exit_code = 4


class TopicRefused(CdcError):
    """Kafka will not take or serve the data until the operator changes something (rights, settings, size)."""

    exit_code = 3


class FencedError(CdcError):
    """Another process with the same transactional id took over; this one must end without a further write."""

    exit_code = 5


class TakenOver(CdcError):
    """Another bridge took the slot over, as it should when this one was away. This one waits for its turn."""

    retryable = True
    exit_code = 4


class ValueRefused(CdcError):
    """An application's key or value must not go into its topic as it is; nothing was written."""


class VersionConflict(CdcError):
    """A key has another version than the application expected; nothing was written."""


class ReplicaUnavailable(CdcError):
    """The replica database cannot be reached or asked us to try again."""

    retryable = True
    exit_code = 4


class ReplicaRefused(CdcError):
    """The replica database will not take the data until the operator changes something."""

    exit_code = 3


class StoreUnavailable(CdcError):
    """The store of a view cannot be reached or went away; nothing in it is wrong."""

    retryable = True
    exit_code = 4


class StoreFull(StoreUnavailable):
    """The store of a view has no room for what is written to it. What is there stays; it is tried again, for room comes
    back without anybody telling us."""


class StoreDamaged(StoreUnavailable):
    """The store of a view does not hold what was written to it. It is filled anew, by the process that fills it."""

    def __init__(self, message: str) -> None:
        super().__init__(
            message,
            remedy="let `cdc serve` run: it fills the store anew from the topics; and look at the disk",
        )


class StoreRefused(CdcError):
    """The store of a view is of no use until the operator changes something: foreign, or of another version."""

    exit_code = 3


class StackError(CdcError):
    """The embedded or container stack cannot be brought up."""

    exit_code = 4
