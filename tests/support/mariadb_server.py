"""An embedded MariaDB server. The program comes from a Maven artefact (``mariadb.lock``), and is fetched once per user.

The empty data directory is made once, too: each server begins with a copy of it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import pymysql

from cdc.base.errors import StackError
from cdc.lab.stack.account import CURRENT
from cdc.lab.stack.artefacts import fetch, read_lock
from cdc.lab.stack.cache import Say, cache_dir, make_once, silent
from cdc.lab.stack.embedded import HOST, EmbeddedServer
from cdc.lab.stack.running import ServerRecord, sweep
from tests.support.names import unique

_LOCK = Path(__file__).with_name("mariadb.lock")
_SYSTEM_TABLES = ("mysql_system_tables.sql", "mysql_system_tables_data.sql")
_OWNER = f"""
FLUSH PRIVILEGES;
CREATE OR REPLACE USER root@'{HOST}';
GRANT ALL ON *.* TO root@'{HOST}' WITH GRANT OPTION;
"""
_SMALL = ("--innodb-log-file-size=8M", "--innodb-buffer-pool-size=64M", "--innodb-flush-log-at-trx-commit=0")


class MariadbServer(EmbeddedServer):
    """A MariaDB server on the loopback address; user ``root``, no password."""

    _stop_signals: ClassVar[tuple[signal.Signals, ...]] = (signal.SIGTERM,)
    _death_signal: ClassVar[signal.Signals] = signal.SIGKILL

    def __init__(self, record: ServerRecord, home: Path, settings: Mapping[str, str]) -> None:
        super().__init__(record, CURRENT, detached=False)
        self.name = "MariaDB"
        self._home = home
        self._settings = settings

    @classmethod
    def open(cls, settings: Mapping[str, str] | None = None, *, say: Say = silent) -> Self:
        """Starts a new, empty server.

        Args:
            settings: more options of the server, without the two dashes.
            say: called with the progress of a download.
        """
        sweep()
        home = fetch_mariadb(say)
        server = cls(ServerRecord("MariaDB", detached=False, in_memory=True), home, settings or {})
        try:
            shutil.copytree(home / "data", server.directory / "data")
            return server.start()
        except BaseException:
            server.close()
            raise

    @property
    def url(self) -> str:
        return f"mariadb+pymysql://root@{HOST}:{self.port}"

    def connect(self, database: str | None = None, **options: Any) -> pymysql.Connection[Any]:
        """An autocommit connection as the owner of everything."""
        given: dict[str, Any] = {"user": "root", "charset": "utf8mb4", "autocommit": True, **options}
        return pymysql.connect(host=HOST, port=self.port, database=database, **given)

    def command(self) -> list[str | Path]:
        own = {
            "port": str(self.port),
            "bind-address": HOST,
            "socket": str(self.directory / "server.sock"),
            "pid-file": str(self.directory / "server.pid"),
            "skip-name-resolve": "1",
            "performance-schema": "OFF",
        }
        options = [f"--{name}={value}" for name, value in {**own, **self._settings}.items()]
        return [*_program(self._home, self.directory / "data"), *options]

    def _environment(self) -> Mapping[str, str]:
        return os.environ

    def _answers(self) -> bool:
        with contextlib.suppress(pymysql.Error):
            self.connect(connect_timeout=1).close()
            return True
        return False


@dataclass(frozen=True)
class MariadbDatabase:
    """A fresh database of one test."""

    server: MariadbServer
    name: str

    @property
    def url(self) -> str:
        return f"{self.server.url}/{self.name}"

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        """Run SQL as the owner of everything; its rows, if it has any."""
        with contextlib.closing(self.server.connect(self.name)) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())


@contextlib.contextmanager
def fresh_mariadb(server: MariadbServer, charset: str = "utf8mb4") -> Iterator[MariadbDatabase]:
    """A new database; at the end it goes, after whoever still uses it."""
    database = MariadbDatabase(server, unique("t_"))
    with contextlib.closing(server.connect()) as admin, admin.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {database.name} CHARACTER SET {charset}")
    try:
        yield database
    finally:
        with contextlib.closing(server.connect()) as admin, admin.cursor() as cursor:
            cursor.execute("SELECT id FROM information_schema.processlist WHERE db = %s", (database.name,))
            for (number,) in cursor.fetchall():
                with contextlib.suppress(pymysql.Error):  # it ended by itself
                    cursor.execute(f"KILL {number}")
            cursor.execute(f"DROP DATABASE {database.name}")


def fetch_mariadb(say: Say = silent) -> Path:
    """Returns the directory of the server; the first call downloads it, and makes the data directory."""
    [artefact] = read_lock(_LOCK)

    def make(directory: Path) -> None:
        jars = directory / "jars"
        jars.mkdir()
        fetch([artefact], jars, what="MariaDB", instead="leave out this test", say=say, download=None)
        with zipfile.ZipFile(jars / artefact.file_name) as jar:
            for name in jar.namelist():
                _, _, within = name.partition("/linux/")
                if within == "bin/mariadbd" or (within.startswith("share/") and not name.endswith(("/", ".jar"))):
                    (target := directory / within).parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(jar.read(name))
        (directory / "bin" / "mariadbd").chmod(0o755)
        shutil.rmtree(jars)
        tables = "".join((directory / "share" / each).read_text() for each in _SYSTEM_TABLES)
        (directory / "data").mkdir()
        made = subprocess.run(
            [*_program(directory, directory / "data"), "--bootstrap"],
            input=f"CREATE DATABASE mysql;\nUSE mysql;\n{tables}{_OWNER}",
            capture_output=True,
            text=True,
        )
        if made.returncode:
            raise StackError(f"MariaDB's data directory cannot be made:\n{made.stderr}", remedy="see what it says")

    return make_once(cache_dir() / f"mariadb-{artefact.version}", make)


def _program(home: Path, data: Path) -> list[str | Path]:
    options = (f"--basedir={home}", f"--lc-messages-dir={home / 'share'}", f"--datadir={data}")
    as_root = ("--user=root",) if os.geteuid() == 0 else ()
    return [home / "bin" / "mariadbd", "--no-defaults", *options, *_SMALL, *as_root]
