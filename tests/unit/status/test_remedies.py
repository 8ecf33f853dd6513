"""What of a remedy can be pasted, and that it goes into the deployment that was looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.status.remedies import command_of, for_file


@pytest.mark.parametrize(
    ("remedy", "command"),
    [
        ("start the bridge: cdc run", "cdc run"),
        ("mend Kafka first: a sink that runs goes on by itself. Else: cdc sink", "cdc sink"),
        ("GRANT SELECT ON public.t TO cdc;", "GRANT SELECT ON public.t TO cdc;"),
        ("let it finish, or: SELECT pg_terminate_backend(4);", "SELECT pg_terminate_backend(4);"),
        ("in database d: COMMIT PREPARED 'x'; or ROLLBACK PREPARED 'x';", "COMMIT PREPARED 'x';"),
        ("correct what it names\nthen: cdc backfill public.t", "cdc backfill public.t"),
        ("look at the brokers: does each of them answer, and has its disk room?", ""),
        ("see cdc check", ""),
        ("is the server up, and are source.dsn's host and port right?", ""),
        ("", ""),
    ],
)
def test_prose_is_no_command(remedy: str, command: str) -> None:
    assert command_of(remedy) == command


@pytest.mark.parametrize(
    ("remedy", "whole"),
    [
        ("start the bridge: cdc run", "start the bridge: cdc run -c 'my shop.yaml'"),
        ("cdc backfill --sweep public.t", "cdc backfill --sweep public.t -c 'my shop.yaml'"),
        ("cdc grants source | psql shop", "cdc grants source -c 'my shop.yaml' | psql shop"),
        ("cdc status -c other.yaml", "cdc status -c other.yaml"),
        ("stop its reader (cdc run) first", "stop its reader (cdc run -c 'my shop.yaml') first"),
        ("SELECT 1;", "SELECT 1;"),
        ("ps -eo pid,stat,args | grep 'cdc run'", "ps -eo pid,stat,args | grep 'cdc run'"),
    ],
)
def test_a_command_names_the_file(remedy: str, whole: str) -> None:
    assert for_file(remedy, Path("my shop.yaml")) == whole
    assert for_file(remedy, None) == remedy
