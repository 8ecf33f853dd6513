"""An embedded PostgreSQL server of any supported version, with a cluster of its own."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Self
from urllib.parse import quote

import psycopg

from cdc.base.errors import StackError
from cdc.lab.stack.account import Account
from cdc.lab.stack.binaries import PostgresMajor, runnable
from cdc.lab.stack.cache import Say, silent
from cdc.lab.stack.embedded import HOST, EmbeddedServer
from cdc.lab.stack.running import ServerRecord, sweep

_SETTINGS: Mapping[str, str] = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "wal_level": "logical",
    "max_replication_slots": "20",
    "max_wal_senders": "20",
    "max_prepared_transactions": "10",
}


class PostgresServer(EmbeddedServer):
    """A PostgreSQL server on the loopback address; user ``postgres``, no password, so any local user can connect."""

    _stop_signals: ClassVar[tuple[signal.Signals, ...]] = (
        signal.SIGINT,
        signal.SIGQUIT,
    )  # fast shutdown, then immediate: a walsender that is stuck delays the fast one
    _death_signal: ClassVar[signal.Signals] = signal.SIGQUIT

    def __init__(self, record: ServerRecord, account: Account, binaries: Path, *, major: int, detached: bool) -> None:
        super().__init__(record, account, detached=detached)
        self.name = f"PostgreSQL {major}"
        self.major = major
        self.binaries = binaries

    @classmethod
    def open(
        cls,
        *,
        major: PostgresMajor = 16,
        settings: Mapping[str, str] | None = None,
        fsync: bool = True,
        detached: bool = False,
        say: Say = silent,
    ) -> Self:
        """Initialise a new cluster and start it.

        Args:
            major: the server version. 14, 15 and 17 are downloaded at first use (15 MB each), and support TLS;
                16 and 18 are already installed, and do not.
            settings: settings for ``postgresql.conf``, in addition to logical WAL, 20 slots and 20 walsenders.
            fsync: False makes tests quicker, but a crash of the *machine* then loses the cluster, which is kept in
                memory if there is room.
            detached: let the server outlive this process.
            say: called before anything that takes long.

        Raises:
            StackError: there are no binaries, no account can run them, or the server did not start.
        """
        sweep()
        record = ServerRecord(f"PostgreSQL {major}", detached=detached, in_memory=not fsync)
        try:
            account, binaries = runnable(major, record.directory, _environment(), say)
            server = cls(record, account, binaries, major=major, detached=detached)
        except BaseException:
            record.remove()
            raise
        try:
            server._initialise({**_SETTINGS, "fsync": "on" if fsync else "off", **(settings or {})})
            return server.start()
        except BaseException:
            server.close()
            raise

    @property
    def url(self) -> str:
        """The URL of the database ``postgres``."""
        return self.dsn()

    def dsn(self, dbname: str = "postgres") -> str:
        """Returns the URL of a database for the superuser."""
        return f"postgresql://postgres@{HOST}:{self.port}/{quote(dbname, safe='')}"

    def command(self) -> list[str | Path]:
        return [self.binaries / "postgres", "-D", self.directory / "data", "-p", str(self.port)]

    def _environment(self) -> Mapping[str, str]:
        return _environment()

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.dsn(), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def _initialise(self, settings: Mapping[str, str]) -> None:
        data = self.directory / "data"
        # C collation, and time zone UTC from the environment: the same order and the same text on every machine.
        form = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"]
        made = subprocess.run(
            self.account.command([self.binaries / "initdb", "-D", data, *form], death_signal=signal.SIGKILL),
            cwd=self.directory,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if made.returncode != 0:
            raise StackError(
                f"initdb of {self.name} failed as {self.account.name}: {made.stderr.strip()}",
                remedy="free some disk space in the temporary directory, or set CDC_PG_URL to your own server",
            )
        # Write settings to the file, because ALTER SYSTEM cannot override the command line.
        with (data / "postgresql.conf").open("a", encoding="utf-8") as file:
            for name, value in settings.items():
                file.write(f"{name} = '{value.replace(chr(39), chr(39) * 2)}'\n")


def _environment() -> Mapping[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
    return {**inherited, "LC_ALL": "C", "TZ": "UTC"}
