"""All errors that this project raises on purpose: each says whose fault it is, and what to do about it.

``daemon.supervise`` decides by the class alone: after a ``retryable`` error it tries again with back-off, any other
error stops the process with ``exit_code``. An exception from outside this tree is a bug in cdc, and is never swallowed.
"""

from __future__ import annotations

from typing import Final

_FOREIGN_BYTES: Final = (
    "find out who else writes there (`cdc topics lint` for a topic); if nobody does, report it with the versions of "
    "PostgreSQL, Kafka and cdc"
)


_REMEDY: Final = "\n  remedy: "


def with_remedy(text: str, remedy: str) -> str:
    """Returns both as one text: so errors are printed, and reasons are stored in a topic or in the replica."""
    return f"{text}{_REMEDY}{remedy}"


def remedy_apart(text: str) -> tuple[str, str]:
    """Splits what ``with_remedy`` joined; the remedy is empty if there is none."""
    told, _, remedy = text.partition(_REMEDY)
    return told, remedy


class CdcError(Exception):
    """The root of the tree.

    Args:
        message: names the object (table, topic, slot, file), and says what is wrong with it.
        remedy: the command or change that corrects it, for a person to copy; never empty. If the error goes away by
            itself, it says so, and what to do if it does not.
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
    """Bytes do not follow their format: they are truncated, unknown or contradictory.

    Args:
        message, remedy: as for ``CdcError``. The default remedy assumes that another program wrote the bytes.
    """

    def __init__(self, message: str, *, remedy: str = _FOREIGN_BYTES) -> None:
        super().__init__(message, remedy=remedy)


class EncodeError(CdcError):
    """A row cannot be encoded as the topic contract requires. It stops the bridge, which never skips a row."""

    exit_code = 3


class SourceUnavailable(CdcError):
    """PostgreSQL (source) cannot be reached, went away, or is still busy with our previous connection."""

    retryable = True
    exit_code = 4


class SourceBusy(SourceUnavailable):
    """PostgreSQL (source) cancelled a query: a lock, a request, or a lack of resources. The connection stays usable."""


class SourceLocked(SourceBusy):
    """Somebody holds a lock on a source table for longer than one of our waits. The message says who."""


class SourceAltered(SourceUnavailable):
    """A table, column or type of the source is no longer as we knew it.

    It is retryable, because another look finds what exists now. Code that reads rows for a change in the stream must
    catch it: what the change described can no longer be read, however often it tries.
    """


class SourceUndecodable(SourceUnavailable):
    """The server failed while decoding its own WAL. Whether the failure is permanent shows only if it comes back.

    Args:
        message: as for ``CdcError``.
        is_of_a_value: whether a value could not be sent; if not, it concerns the server's bookkeeping.
        is_of_streaming: whether it cannot come back once transactions are sent when they end.
    """

    def __init__(self, message: str, *, is_of_a_value: bool = False, is_of_streaming: bool = False) -> None:
        super().__init__(message, remedy="wait: the bridge tries again, and stops with what to do when it comes back")
        self.is_of_a_value = is_of_a_value
        self.is_of_streaming = is_of_streaming


class SourceRefused(CdcError):
    """PostgreSQL (source) refuses to serve us until the operator changes something."""

    exit_code = 3


class GapError(SourceRefused):
    """Changes may be missing between the stored progress and what the slot can still deliver."""


class SpillError(CdcError):
    """This machine's disk cannot hold the changes of a transaction that is still running."""

    exit_code = 3


class TopicUnavailable(CdcError):
    """Kafka cannot be reached, or a Kafka transaction was aborted; the work is repeated."""

    retryable = True
    exit_code = 4


class TopicRefused(CdcError):
    """Kafka refuses to take or serve the data until the operator changes something (rights, settings, size)."""

    exit_code = 3


class RegistryUnavailable(CdcError):
    """The schema registry cannot be reached, or cannot answer now."""

    retryable = True
    exit_code = 4


class RegistryRefused(CdcError):
    """The schema registry refuses to serve us, or takes no such schema, until the operator changes something."""

    exit_code = 3


class FencedError(CdcError):
    """Another process with the same transactional id took over; this one must end without writing anything more."""

    exit_code = 5


class TakenOver(CdcError):
    """Another bridge took over the slot, as it should while this one was away. This one waits for its turn."""

    retryable = True
    exit_code = 4


class ValueRefused(CdcError):
    """An application's key or value is not allowed in its topic; nothing was written."""


class VersionConflict(CdcError):
    """A key has another version than the application expected; nothing was written."""


class ReplicaUnavailable(CdcError):
    """The replica database cannot be reached, or asked us to try again."""

    retryable = True
    exit_code = 4


class ReplicaRefused(CdcError):
    """The replica database refuses the data until the operator changes something."""

    exit_code = 3


class StoreUnavailable(CdcError):
    """The store of a view cannot be reached or went away; its contents are sound."""

    retryable = True
    exit_code = 4


class StoreFull(StoreUnavailable):
    """The store of a view has no room for more. Its contents stay. We try again, because nobody tells us when there is
    room."""


class StoreDamaged(StoreUnavailable):
    """The store of a view does not hold what was written to it. The process that fills it fills it again."""

    def __init__(self, message: str) -> None:
        super().__init__(
            message,
            remedy="let `cdc serve` run: it fills the store again from the topics; then check the disk",
        )


class StoreRefused(CdcError):
    """The store of a view cannot be used until the operator changes something: it is foreign, or of another version."""

    exit_code = 3


class StackError(CdcError):
    """The embedded or container stack cannot be started."""

    exit_code = 4
