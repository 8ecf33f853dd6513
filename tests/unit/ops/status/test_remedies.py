"""What of a remedy can be pasted."""

from __future__ import annotations

import pytest

from cdc.ops.dashboard.alarms import command_of


@pytest.mark.parametrize(
    ("remedy", "command"),
    [
        ("start the bridge: cdc run", "cdc run"),
        ("fix Kafka first; a running sink then continues by itself. If none is running: cdc sink", "cdc sink"),
        ("GRANT SELECT ON public.t TO cdc;", "GRANT SELECT ON public.t TO cdc;"),
        ("let it finish, or: SELECT pg_terminate_backend(4);", "SELECT pg_terminate_backend(4);"),
        ("in database d: COMMIT PREPARED 'x'; or ROLLBACK PREPARED 'x';", "COMMIT PREPARED 'x';"),
        ("correct what it names\nthen: cdc backfill public.t", "cdc backfill public.t"),
        ("look at the brokers: does each of them answer, and has its disk room?", ""),
        ("see cdc check", ""),
        ("cdc tries again by itself; if that does not help: is a broker up?", ""),
        ("look at its load; who holds a lock there is said by: cdc status", "cdc status"),
        ("is the server up, and are source.dsn's host and port right?", ""),
        ("", ""),
    ],
)
def test_prose_is_no_command(remedy: str, command: str) -> None:
    assert command_of(remedy) == command
