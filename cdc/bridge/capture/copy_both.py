"""Runs a walsender session on ``psycopg.pq``: START_REPLICATION, and frames in and out.

psycopg has no replication API, but libpq knows the copy-both protocol, so this works at libpq's level. It reads whole
CopyData frames as bytes, and sends status updates that ``decode.walsender`` makes. It knows nothing of their content.

https://www.postgresql.org/docs/current/protocol-replication.html
"""

from __future__ import annotations

import select
from collections.abc import Mapping
from dataclasses import dataclass

import psycopg
from psycopg import pq

from cdc.base.errors import GapError, SourceRefused, SourceUnavailable, SourceUndecodable
from cdc.base.lsn import LSN
from cdc.bridge.source.connect import connect
from cdc.bridge.source.slot_lock import Holder, take_statement
from cdc.bridge.source.sqlstates import SERVER_AWAY, message_of, result_error, sqlstate_of

_ORDINARY = "proto_version '1'"
_STREAMING = "proto_version '2', streaming 'on'"

_OBJECT_IN_USE = "55006"
_UNDEFINED_OBJECT = "42704"
_PREREQUISITE_STATE = "55000"
_DATA = "22"
_DECODING_FAILED = ("XX", _DATA, "54")
"""SQLSTATEs of an internal error or damage, of a value that cannot become UTF-8, and of a row too large to be sent."""


@dataclass(frozen=True, slots=True)
class System:
    """What IDENTIFY_SYSTEM answers: the cluster, the timeline, and how far its WAL is."""

    system_identifier: str
    timeline: int
    flush_lsn: LSN


class CopyBoth:
    """One walsender connection (``replication=database``).

    Args:
        connection: keyword arguments for libpq, as ``SourceConfig.connection()`` gives them.
        application_name: what ``pg_stat_replication`` shows.

    Raises:
        SourceUnavailable: the server does not answer.
        SourceRefused: the server answers, but refuses the connection.
    """

    def __init__(self, connection: Mapping[str, str], *, application_name: str) -> None:
        # Not PGconn.connect: while a server hangs, that would block all other threads, and with them signals.
        self._conn = connect(connection, application_name=application_name, is_walsender=True)
        self._pgconn = self._conn.pgconn
        self._backend_pid = self._pgconn.backend_pid
        self._poll = select.poll()
        self._poll.register(self._pgconn.socket, select.POLLIN)

    @property
    def backend_pid(self) -> int:
        """The server process of this session, also after its end."""
        return self._backend_pid

    def identify(self) -> System:
        """Ask IDENTIFY_SYSTEM; only before ``start``."""
        result = self._pgconn.exec_(b"IDENTIFY_SYSTEM")
        if result.status != pq.ExecStatus.TUPLES_OK:
            raise result_error("identifying the server", result)
        system, timeline, flush = (result.get_value(0, i) or b"" for i in range(3))
        return System(system.decode(), int(timeline), LSN.parse(flush.decode()))

    def hold(self, slot: str) -> Holder | None:
        """Take the lock of a slot, or check that it is still ours; None if others have it. Only before ``start``.

        Raises:
            SourceUnavailable: the connection broke, and with it the lock is gone.
            SourceRefused: our role may not take advisory locks.
        """
        result = self._pgconn.exec_(take_statement(slot))
        if result.status != pq.ExecStatus.TUPLES_OK:
            remedy = "GRANT EXECUTE ON FUNCTION pg_catalog.pg_try_advisory_lock(bigint) TO PUBLIC;"
            raise result_error(f"taking the lock of slot {slot}", result, remedy=remedy)
        if not result.ntuples:
            return None
        return Holder(self._backend_pid, (result.get_value(0, 2) or b"").decode())

    def timeline_history(self, timeline: int) -> str:
        """Returns the history file of a timeline; only before ``start``.

        Raises:
            SourceRefused: the server does not have the file, or does not show it.
            SourceUnavailable: the connection broke.
        """
        result = self._pgconn.exec_(b"TIMELINE_HISTORY %d" % timeline)
        if result.status != pq.ExecStatus.TUPLES_OK:
            if sqlstate_of(result) is None:
                raise result_error(f"asking how timeline {timeline} began", result)
            raise SourceRefused(
                f"the server does not say how timeline {timeline} began: {message_of(result)}",
                remedy="run `cdc check`: it says what the role lacks for the replication protocol",
            )
        return (result.get_value(0, 1) or b"").decode(errors="replace")

    def start(
        self, slot: str, publication: str, start: LSN, *, streaming: bool = False, messages: bool = False
    ) -> None:
        """Begin streaming pgoutput from ``start`` or the slot's confirmed position, whichever is later.

        Args:
            slot: the slot to read from.
            publication: the publication that says which tables.
            start: where to begin.
            streaming: use protocol 2, which sends large transactions in blocks while they run; else protocol 1.
            messages: have logical messages sent, too.

        Raises:
            SourceUnavailable: another session holds the slot, which may be our own from before a crash.
            GapError: the slot is missing or lost.
            SourceRefused: the server refuses for another reason, which the message tells.
        """
        publication_name = publication.replace('"', '""').replace("'", "''")
        more = ", messages 'true'" if messages else ""
        result = self._pgconn.exec_(
            f'START_REPLICATION SLOT "{slot}" LOGICAL {start} '
            f"({_STREAMING if streaming else _ORDINARY}, publication_names '\"{publication_name}\"'{more})".encode()
        )
        if result.status == pq.ExecStatus.COPY_BOTH:
            self._pgconn.nonblocking = 1
            return
        message, state = message_of(result), sqlstate_of(result)
        if state == _OBJECT_IN_USE:
            raise SourceUnavailable(
                f"replication slot {slot!r} is in use: {message}",
                remedy="stop the other bridge, or leave this one waiting: it takes over when the slot is free",
            )
        if state in (_UNDEFINED_OBJECT, _PREREQUISITE_STATE):
            raise GapError(f"cannot stream from slot {slot!r}: {message}", remedy="run `cdc status`")
        error = result_error(f"START_REPLICATION on slot {slot!r}", result)
        raise error if error.retryable else SourceRefused(error.message, remedy="run `cdc check`")

    def read(self, max_frames: int) -> list[bytes]:
        """Returns whole frames that have arrived, at most ``max_frames``; none when the socket is drained.

        Raises:
            SourceUnavailable: the stream ended or broke.
        """
        frames: list[bytes] = []
        get_copy_data, append = self._pgconn.get_copy_data, frames.append
        try:
            for _ in range(max_frames):
                size, data = get_copy_data(1)
                if size > 0:
                    append(bytes(data))
                    continue
                if size == -1:
                    raise self._ended()
                # Hand out what is here before reading more, or walsender and bridge would wake each other per frame
                if frames or not self._poll.poll(0):
                    break
                self._pgconn.consume_input()
        except psycopg.Error as error:
            raise SourceUnavailable(f"the replication stream broke: {error}", remedy=SERVER_AWAY) from error
        return frames

    def wait(self, timeout_s: float) -> bool:
        """Wait until bytes arrive or the time is over. Returns whether there are bytes, or the connection ended."""
        return bool(self._poll.poll(timeout_s * 1000))

    def send(self, frame: bytes) -> None:
        """Send one CopyData frame (a standby status update)."""
        try:
            self._pgconn.put_copy_data(frame)
            while self._pgconn.flush():
                select.select([], [self._pgconn.socket], [], 1.0)
        except psycopg.Error as error:
            raise SourceUnavailable(f"the replication stream broke: {error}", remedy=SERVER_AWAY) from error

    def close(self) -> None:
        """End the session. The server frees the slot when it notices."""
        self._conn.close()

    def _ended(self) -> SourceUnavailable:
        result = None if self._pgconn.is_busy() else self._pgconn.get_result()  # if busy, it would block all threads
        if result is None:
            return SourceUnavailable("the replication stream ended: the server closed it", remedy=SERVER_AWAY)
        message = f"the replication stream ended: {result.get_error_message()}"
        if (state := sqlstate_of(result) or "").startswith(_DECODING_FAILED):
            return SourceUndecodable(message, is_of_a_value=state.startswith(_DATA))
        return SourceUnavailable(message, remedy=SERVER_AWAY)
