"""The checks of ``cdc check`` for the standby that ``snapshot.dsn`` names: can a backfill read its tables there?"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from cdc.base.config import Config
from cdc.base.errors import CdcError
from cdc.base.lsn import LSN
from cdc.bridge.capture.standby import is_standby_of
from cdc.bridge.source.connect import LOOK_S, connect, describe, source_errors
from cdc.bridge.source.preflight import Finding
from cdc.bridge.source.rights import table_rights, why_unreadable
from cdc.bridge.source.table import TableInfo
from cdc.bridge.source.wal_end import wal_end

_APPLICATION: Final = "cdc check"
_SHORT_DELAY_MS: Final = 10_000
"""Shorter delays are a warning: reading a chunk takes about a second, and several on a busy machine."""


@dataclass(frozen=True, slots=True)
class StandbyFacts:
    """The settings and the state of the standby.

    Attributes:
        feeds_back: ``hot_standby_feedback``: the primary keeps rows while queries on the standby need them.
        delay_ms: ``max_standby_streaming_delay``: how long replay waits for a query; -1 for ever.
        delay: the same, as the server prints it.
        replayed: the last replayed LSN; None if it has replayed nothing since its start.
        is_paused: whether somebody paused the replay.
        role: the role that reads the tables.
    """

    feeds_back: bool
    delay_ms: int
    delay: str
    replayed: LSN | None
    is_paused: bool
    role: str


_FACTS: Final = """
SELECT current_setting('hot_standby_feedback')::bool,
  (SELECT setting::int FROM pg_settings WHERE name = 'max_standby_streaming_delay'),
  current_setting('max_standby_streaming_delay'), pg_last_wal_replay_lsn()::text,
  CASE WHEN pg_is_in_recovery() THEN pg_is_wal_replay_paused() ELSE false END, current_user::text
"""


def check_standby(config: Config, tables: Sequence[TableInfo]) -> list[Finding]:
    """Returns findings about the standby; none if the configuration names no standby."""
    findings: list[Finding] = []
    if config.snapshot.dsn is None:
        return findings
    arguments = config.snapshot.connection()
    try:
        with connect(arguments, application_name=_APPLICATION, lock_timeout_s=LOOK_S) as conn:
            findings.append(Finding("OK", "standby connection", describe(arguments)))
            facts = _facts(conn)
            findings += _beside_the_source(conn, config, facts)
            findings += _rights(conn, facts.role, tables)
    except CdcError as error:
        if findings:
            return [*findings, Finding.failure("standby", error)]
        # The text of this remedy was written for a connection to the source.
        remedy = error.remedy.replace("source.dsn", "snapshot.dsn").replace("source.password", "snapshot.password")
        findings.append(Finding("FAIL", "standby connection", error.message, remedy))
    return findings


def check_reading(facts: StandbyFacts) -> list[Finding]:
    """Returns findings about what could cancel or stop the reading of a table. No I/O."""
    return [_conflicts(facts), *_pause(facts)]


def _conflicts(facts: StandbyFacts) -> Finding:
    subject = "standby conflicts"
    if facts.feeds_back:
        return Finding("OK", subject, "hot_standby_feedback is on: the source keeps the rows that are being read")
    if facts.delay_ms < 0:
        return Finding("OK", subject, "max_standby_streaming_delay is -1: replay waits until a query is over")
    text = (
        f"hot_standby_feedback is off: after {facts.delay}, replay cancels a conflicting query; its chunk is read again"
    )
    if facts.delay_ms >= _SHORT_DELAY_MS:
        return Finding("OK", subject, text)
    remedy = "ALTER SYSTEM SET hot_standby_feedback = on; SELECT pg_reload_conf();  -- on the standby"
    return Finding("WARN", subject, f"{text}; while vacuum is active, a backfill may never end", remedy)


def _pause(facts: StandbyFacts) -> list[Finding]:
    if not facts.is_paused:
        return []
    text = f"is paused at {facts.replayed}: a backfill waits until the standby has replayed what it needs"
    return [Finding("WARN", "standby replay", text, "SELECT pg_wal_replay_resume();  -- on the standby")]


def _beside_the_source(conn: psycopg.Connection[Any], config: Config, facts: StandbyFacts) -> list[Finding]:
    """Check that this is a standby of the source, and that the tables can be read there.

    Raises:
        SourceRefused: the server is not a standby of the source.
    """
    lag = ""
    with contextlib.ExitStack() as stack:
        try:
            source = stack.enter_context(
                connect(config.source.connection(), application_name=_APPLICATION, lock_timeout_s=LOOK_S)
            )
        except CdcError:
            return check_reading(facts)  # check_source reports the source that is down
        if not is_standby_of(conn, source):
            text = "snapshot.dsn names the source itself, so reading tables there does not relieve the source"
            return [Finding("WARN", "standby", text, "name a standby in snapshot.dsn, or leave it out")]
        if facts.replayed is not None:
            lag = f", {max(wal_end(source) - facts.replayed, 0):,} bytes of WAL behind it"
    return [Finding("OK", "standby", f"of the source{lag}"), *check_reading(facts)]


def _rights(conn: psycopg.Connection[Any], role: str, tables: Sequence[TableInfo]) -> list[Finding]:
    rights = table_rights(conn, tables)
    lacks = [
        Finding("FAIL", f"standby table {info.qualified_name}", each.reason, f"{each.remedy}  -- on the source")
        for info in tables
        for each in why_unreadable(info, rights, role)
    ]
    return lacks or [Finding("OK", "standby rights", f"role {role} may read the tables")]


def _facts(conn: psycopg.Connection[Any]) -> StandbyFacts:
    with source_errors("asking the standby"):
        row = conn.execute(_FACTS).fetchone()
    assert row is not None
    feeds_back, delay_ms, delay, replayed, is_paused, role = row
    return StandbyFacts(feeds_back, delay_ms, delay, replayed and LSN.parse(replayed), is_paused, role)
