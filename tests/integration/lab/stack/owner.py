"""A process that owns servers, for tests that end it: ``python -m tests.integration.lab.stack.owner postgres kafka``.

Prints one JSON line with what it started, then waits for its standard input to end.
"""

from __future__ import annotations

import contextlib
import json
import sys

import psycopg

from cdc.lab.stack import KafkaBroker, PostgresServer, RedisServer
from cdc.lab.stack.embedded import EmbeddedServer


def main(wanted: list[str]) -> None:
    with contextlib.ExitStack() as cleanup:
        servers: list[EmbeddedServer] = []
        if "postgres" in wanted:
            server = cleanup.enter_context(PostgresServer.open(fsync=False))
            with psycopg.connect(server.dsn()) as connection:
                assert connection.execute("select 1").fetchone() == (1,)
            servers.append(server)
        if "kafka" in wanted:
            servers.append(cleanup.enter_context(KafkaBroker.open(heap_mb=256, quick_start=True)))
        if "redis" in wanted:
            servers.append(cleanup.enter_context(RedisServer.open()))
        started = [
            {"pid": server.pid, "directory": str(server.directory), "account": server.account.name}
            for server in servers
        ]
        sys.stdout.write(json.dumps(started) + "\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1:])
