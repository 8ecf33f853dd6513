"""Finds what in the server would keep the bridge from starting, or surprise its operator later. No I/O.

It judges facts that ``server`` and ``slot`` read. Each finding has its remedy. ``preflight_tables`` looks at the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from cdc.base.errors import CdcError
from cdc.bridge.source.server import ServerFacts
from cdc.bridge.source.slot import PLUGIN, no_slot_free
from cdc.bridge.source.table import quoted
from cdc.contract.slot_state import SlotState

Level: TypeAlias = Literal["OK", "WARN", "FAIL"]

OLDEST_VERSION: Final = 140000
"""PostgreSQL 14 was the oldest supported release when this was written."""
_TELLS_RUNNING_TRANSACTIONS: Final = {14: 19, 15: 14, 16: 10, 17: 6}
"""The first minor versions whose walsenders look a table up again when it joins a publication beside a transaction that
has changed it (commit 4909b38af0 of April 2025, and its repair of June)."""
_DECODES_ON_STANDBYS: Final = 160000
_PRIMARY: Final = "point source.dsn at the primary (target_session_attrs=read-write)"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of ``cdc check``.

    Attributes:
        subject: what was looked at: ``wal_level``, ``table public.orders`` …
        remedy: the command or change that helps, for a person to copy; empty when there is nothing to do.
    """

    level: Level
    subject: str
    text: str
    remedy: str = ""

    @classmethod
    def failure(cls, subject: str, error: CdcError) -> Finding:
        """Returns an error as a finding."""
        return cls("FAIL", subject, error.message, error.remedy)


def check_server(facts: ServerFacts, *, reads_tables: bool = True) -> list[Finding]:
    """Returns findings on version, settings and the rights of our role.

    Args:
        facts: facts about the source.
        reads_tables: whether tables are read as well as the stream: ``snapshot.mode`` is not ``never``.
    """
    findings = [judge(facts) for judge in _SERVER_CHECKS]
    if facts.in_recovery:
        findings.append(_standby(facts, reads_tables=reads_tables))
    return findings


def _version(facts: ServerFacts) -> Finding:
    subject = "PostgreSQL version"
    if facts.version_number < OLDEST_VERSION:
        return Finding("FAIL", subject, f"{facts.version} is too old", "upgrade the server to PostgreSQL 14 or newer")
    major, minor = divmod(facts.version_number, 10_000)
    if minor < (safe := _TELLS_RUNNING_TRANSACTIONS.get(major, 0)):
        return Finding(
            "WARN",
            subject,
            f"{facts.version} may never send the rows of a table that joins the publication while a transaction that "
            "has changed the table is running",
            f"upgrade the server to {major}.{safe} or newer",
        )
    return Finding("OK", subject, facts.version)


def _standby(facts: ServerFacts, *, reads_tables: bool) -> Finding:
    subject = "primary"
    if facts.version_number < _DECODES_ON_STANDBYS:
        text = f"this is a standby, and PostgreSQL {facts.version} sends no row changes from one"
        return Finding("FAIL", subject, text, f"{_PRIMARY}, or upgrade to PostgreSQL 16 or newer")
    if reads_tables:
        return Finding(
            "FAIL",
            subject,
            "this is a standby, which cannot say which transactions are running: rows would be lost",
            f"{_PRIMARY}; snapshot.dsn may name a standby of it. To publish only what changes from now on, set "
            "snapshot.mode to never",
        )
    return Finding(
        "WARN",
        subject,
        "this is a standby: what changes is published, but tables cannot be read, so backfills and repairs fail",
        f"{_PRIMARY} when you need one of these",
    )


def _encoding(facts: ServerFacts) -> Finding:
    if facts.encoding == "SQL_ASCII":
        return Finding(
            "WARN",
            "encoding",
            f"database {facts.database} is SQL_ASCII: text that is not UTF-8 will stop the bridge",
            "move the data to a database made with ENCODING 'UTF8'",
        )
    return Finding("OK", "encoding", facts.encoding)


def _wal_level(facts: ServerFacts) -> Finding:
    if facts.wal_level != "logical":
        return Finding(
            "FAIL",
            "wal_level",
            f"is {facts.wal_level}, so row changes are not in the WAL",
            "ALTER SYSTEM SET wal_level = logical;  -- then restart PostgreSQL",
        )
    return Finding("OK", "wal_level", "logical")


def _replication(facts: ServerFacts) -> Finding:
    if not facts.can_replicate:
        return Finding(
            "FAIL",
            f"role {facts.role}",
            "lacks the REPLICATION attribute",
            f"ALTER ROLE {quoted(facts.role)} REPLICATION;",
        )
    return Finding("OK", f"role {facts.role}", "may replicate")


def _wal_keeping(facts: ServerFacts) -> Finding:
    subject = "max_slot_wal_keep_size"
    if facts.keep_size == "-1":
        return Finding("OK", subject, "no limit: while the bridge is down the server keeps WAL until its disk is full")
    return Finding("OK", subject, f"{facts.keep_size}: a bridge that falls behind by more WAL than that loses its slot")


def _idle_slots(facts: ServerFacts) -> Finding:
    subject = "idle_replication_slot_timeout"
    if facts.idle_slot_timeout in ("0", "0s"):
        return Finding("OK", subject, "never")
    return Finding(
        "WARN",
        subject,
        f"a bridge that is down for {facts.idle_slot_timeout} loses its slot, and changes with it",
        "ALTER SYSTEM SET idle_replication_slot_timeout = 0; SELECT pg_reload_conf();",
    )


_SERVER_CHECKS: Final[Sequence[Callable[[ServerFacts], Finding]]] = (
    _version,
    _encoding,
    _wal_level,
    _replication,
    _wal_keeping,
    _idle_slots,
)


def check_slot(facts: ServerFacts, name: str, state: SlotState | None) -> list[Finding]:
    """Returns findings on the slot, or on whether one can be made; and on whether a walsender is free to read it."""
    return [_slot(facts, name, state), _senders(facts, running=state is not None and state.active)]


def _slot(facts: ServerFacts, name: str, state: SlotState | None) -> Finding:
    subject = f"slot {name}"
    if state is None:
        if facts.slots_used >= facts.slots_max:
            return Finding.failure(subject, no_slot_free(name, facts.slots_max, facts.slots_idle))
        return Finding("OK", subject, f"will be made ({facts.slots_used} of {facts.slots_max} slots in use)")
    drop = f"SELECT pg_drop_replication_slot('{name}');"
    if state.plugin != PLUGIN or state.database != facts.database:
        what = f"{state.plugin or 'a physical slot'} in database {state.database or '-'}"
        return Finding(
            "FAIL", subject, f"belongs to something else: {what}", f"set source.slot to another name, or {drop}"
        )
    if state.lost:
        why = state.invalidation_reason or state.wal_status
        return Finding(
            "FAIL",
            subject,
            f"is lost ({why}): changes since {state.confirmed_flush_lsn} are missing from the topics",
            "CDC_SOURCE__ON_GAP=rebackfill cdc run  # recreates the slot, and publishes all tables again",
        )
    if state.wal_status == "unreserved":
        return Finding(
            "WARN",
            subject,
            "has fallen behind max_slot_wal_keep_size and may be lost at the next checkpoint",
            "ALTER SYSTEM SET max_slot_wal_keep_size = -1; SELECT pg_reload_conf();  -- until the bridge has caught up",
        )
    reader = f"read by pid {state.active_pid}" if state.active else "idle"
    return Finding(
        "OK", subject, f"{reader}, confirmed {state.confirmed_flush_lsn}, keeps {state.retained_bytes} bytes of WAL"
    )


def _senders(facts: ServerFacts, *, running: bool) -> Finding:
    in_use = f"{facts.senders_used} of {facts.senders_max} in use"
    if facts.senders_used >= facts.senders_max and not running:
        return Finding(
            "FAIL",
            "walsenders",
            f"none is free, {in_use}",
            f"ALTER SYSTEM SET max_wal_senders = {facts.senders_max + 4};  -- then restart PostgreSQL",
        )
    return Finding("OK", "walsenders", in_use)
