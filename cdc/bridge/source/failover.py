"""Checks whether the slot would survive the primary: what ``cdc check`` says when a standby is attached.

From PostgreSQL 17 on, a failover slot is copied to standbys that ask for it. That takes three things, and each fails
silently: the slot's own flag, the standby's ``sync_replication_slots``, and the primary's
``synchronized_standby_slots``. Without the last one, topics may be ahead of the standby that takes over.

https://www.postgresql.org/docs/current/logicaldecoding-explanation.html#LOGICALDECODING-REPLICATION-SLOTS-SYNCHRONIZATION
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from cdc.bridge.source.connect import source_errors
from cdc.bridge.source.preflight import Finding

_SUBJECT: Final = "failover"
_SYNCHRONISES: Final = 170000

# The synchronisation of slots shows itself as an ordinary session beside the standby's walsender. It has a name of its
# own, or the name that primary_conninfo gives to both. Column and setting exist from PostgreSQL 17 on.
_FACTS: Final = """
SELECT current_setting('server_version_num')::int,
  ARRAY(SELECT coalesce(s.slot_name::text, r.application_name) FROM pg_stat_replication r
        LEFT JOIN pg_replication_slots s ON s.active_pid = r.pid
        WHERE s.slot_type = 'physical' OR (s.slot_name IS NULL AND r.state = 'streaming') ORDER BY 1),
  CASE WHEN pg_has_role('pg_read_all_stats', 'USAGE') THEN
    EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'client backend' AND (
      application_name LIKE '%%slotsync worker'
      OR application_name IN (SELECT application_name FROM pg_stat_replication))) END,
  coalesce(current_setting('synchronized_standby_slots', true), ''),
  (SELECT (to_jsonb(s) ->> 'failover')::boolean FROM pg_replication_slots s WHERE slot_name = %s)
"""


@dataclass(frozen=True, slots=True)
class FailoverFacts:
    """What the primary knows about its standbys.

    Attributes:
        version_number: ``server_version_num``.
        standbys: physical slots in use, or application names of standbys that follow without one.
        synchronises: whether a standby copies slots; None when our role may not see that.
        awaited: ``synchronized_standby_slots``.
        slot_follows: the slot's failover flag; None when there is no slot yet, or the server has no such flag.
    """

    version_number: int
    standbys: Sequence[str]
    synchronises: bool | None
    awaited: str
    slot_follows: bool | None


def failover_facts(conn: psycopg.Connection[Any], slot: str) -> FailoverFacts:
    """Ask the primary. It shows what other roles' sessions do to members of ``pg_read_all_stats`` only."""
    with source_errors("reading what standbys are attached"):
        row = conn.execute(_FACTS, (slot,)).fetchone()
    assert row is not None
    return FailoverFacts(*row)


def check_failover(facts: FailoverFacts, slot: str) -> list[Finding]:
    """Returns a warning for each thing that would make a failover a gap; nothing when no standby is attached."""
    if not facts.standbys:
        return []
    names = ", ".join(facts.standbys)
    if facts.version_number < _SYNCHRONISES:
        return [
            Finding(
                "WARN",
                _SUBJECT,
                f"{names} may take over without slot {slot}, which follows only from PostgreSQL 17 on: changes may be "
                "missing then",
                "source.on_gap: rebackfill  # closes such a gap by itself, by publishing all tables again",
            )
        ]
    found = []
    if facts.slot_follows is False:
        what = f"slot {slot} is not copied to {names}, because it was made without failover"
        command = f"""psql "dbname=… replication=database" -c 'ALTER_REPLICATION_SLOT "{slot}" (FAILOVER true)'"""
        found.append(Finding("WARN", _SUBJECT, what, command))
    if facts.synchronises is False:
        found.append(
            Finding(
                "WARN",
                _SUBJECT,
                f"no standby copies slots (attached: {names}): slot {slot} would be gone after a failover",
                "on the standby, with dbname in primary_conninfo: ALTER SYSTEM SET sync_replication_slots = on;"
                " ALTER SYSTEM SET hot_standby_feedback = on; SELECT pg_reload_conf();",
            )
        )
    if not facts.awaited:
        found.append(
            Finding(
                "WARN",
                _SUBJECT,
                f"changes are published before {names} has them: after a failover, topics may hold lost changes",
                f"ALTER SYSTEM SET synchronized_standby_slots = '{','.join(facts.standbys)}'; SELECT pg_reload_conf();",
            )
        )
    return found or [Finding("OK", _SUBJECT, f"slot {slot} is copied to a standby ({names})")]
