"""Reads what the server, and our role on it, can do: the facts that preflight judges.

https://www.postgresql.org/docs/current/runtime-config-replication.html
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import psycopg

from cdc.bridge.source.connect import source_errors


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """Settings and rights, as our role sees them.

    Attributes:
        version_number: ``server_version_num``, 160004 for 16.4.
        can_replicate: whether the role may make slots and start walsenders.
        keep_size: ``max_slot_wal_keep_size`` as shown; ``-1`` means no limit.
        idle_slot_timeout: ``idle_replication_slot_timeout`` as shown; ``0`` means never, as before PostgreSQL 18.
    """

    version_number: int
    version: str
    in_recovery: bool
    wal_level: str
    slots_max: int
    slots_used: int
    slots_idle: tuple[str, ...]
    senders_max: int
    senders_used: int
    role: str
    can_replicate: bool
    is_superuser: bool
    database: str
    can_create_in_database: bool
    encoding: str
    keep_size: str
    idle_slot_timeout: str


# A managed service may let members of a role replicate without the attribute: Amazon RDS has rds_replication.
_FACTS: Final = """
SELECT current_setting('server_version_num')::int, current_setting('server_version'), pg_is_in_recovery(),
  current_setting('wal_level'), current_setting('max_replication_slots')::int,
  (SELECT count(*) FROM pg_replication_slots),
  ARRAY(SELECT slot_name::text FROM pg_replication_slots WHERE NOT active ORDER BY 1),
  current_setting('max_wal_senders')::int, (SELECT count(*) FROM pg_stat_replication), current_user::text,
  (SELECT rolsuper OR rolreplication FROM pg_roles WHERE rolname = current_user)
    OR EXISTS (SELECT FROM pg_roles WHERE rolname = 'rds_replication' AND pg_has_role(oid, 'MEMBER')),
  (SELECT rolsuper FROM pg_roles WHERE rolname = current_user),
  current_database()::text, has_database_privilege(current_database(), 'CREATE'), current_setting('server_encoding'),
  coalesce(current_setting('max_slot_wal_keep_size', true), '-1'),
  coalesce(current_setting('idle_replication_slot_timeout', true), '0')
"""


def server_facts(conn: psycopg.Connection[Any]) -> ServerFacts:
    """Ask the server for the facts; any role may."""
    with source_errors("reading settings"):
        row = conn.execute(_FACTS).fetchone()
    assert row is not None
    version_number, version, in_recovery, wal_level, slots_max, slots_used, idle, *rest = row
    return ServerFacts(version_number, version, in_recovery, wal_level, slots_max, slots_used, tuple(idle), *rest)
