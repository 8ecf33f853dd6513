"""A physical standby of an embedded primary: follows it, is promoted when the primary dies."""

from __future__ import annotations

import itertools
import signal
import subprocess
from collections.abc import Mapping
from typing import Final, Self

import psycopg

from cdc.lab.stack import PostgresServer
from cdc.lab.stack.running import ServerRecord
from tests.support.waiting import eventually

STANDBY_SLOT: Final = "standby"
"""The physical slot through which the standby follows; what ``synchronized_standby_slots`` names."""

_PROMOTE_TIMEOUT_S: Final = 60
_ASKS_PER_NUDGE: Final = 25
"""What a slot needs is told anew every 15 s, and who copies slots looks for it ever less often: both can be hurried."""


class Standby(PostgresServer):
    """``Standby.of(primary)``; a server as any other, read-only until ``promote``."""

    @classmethod
    def of(cls, primary: PostgresServer, settings: Mapping[str, str] | None = None) -> Self:
        """Copy the primary and follow it through a physical slot; from PostgreSQL 17 on with its failover slots.

        Args:
            primary: runs; its walsenders and slots must suffice for one more.
            settings: lines for ``postgresql.conf``, after the primary's own.
        """
        record = ServerRecord(f"Standby {primary.major}")
        primary.account.give(record.directory)
        standby = cls(record, primary.account, primary.binaries, major=primary.major, detached=False)
        try:
            standby._copy(primary, settings or {})
            return standby.start()
        except BaseException:
            standby.close()
            raise

    def promote(self) -> None:
        """Make it the primary; returns when it takes writes."""
        with psycopg.connect(self.dsn(), autocommit=True) as admin:
            promoted = admin.execute("SELECT pg_promote(true, %s)", (_PROMOTE_TIMEOUT_S,)).fetchone()
        assert promoted == (True,), self.log_path.read_text()[-2000:]

    def wait_replayed(self, primary: PostgresServer) -> None:
        """Wait until all that the primary has flushed is visible here."""
        with psycopg.connect(primary.dsn()) as there, psycopg.connect(self.dsn(), autocommit=True) as here:
            wanted = there.execute("SELECT pg_current_wal_flush_lsn()").fetchone()
            replayed = "SELECT pg_last_wal_replay_lsn() >= %s"
            eventually(lambda: here.execute(replayed, wanted).fetchone() == (True,), message=f"replay of {wanted}")

    def wait_slot_synchronised(self, slot: str, primary: PostgresServer) -> None:
        """Wait until a failover slot of the primary would survive a promotion (PostgreSQL 17 and newer).

        That comes after changes which were published behind the start of the slot: until then it needs transactions
        that the standby may have cleaned up.
        """
        ready = (
            "SELECT synced AND NOT temporary AND invalidation_reason IS NULL"
            " FROM pg_replication_slots WHERE slot_name = %s"
        )
        with psycopg.connect(self.dsn(), autocommit=True) as here, psycopg.connect(primary.dsn()) as there:
            asked = itertools.count()

            def synchronised() -> bool:
                if next(asked) % _ASKS_PER_NUDGE == 0:
                    there.execute("SELECT pg_log_standby_snapshot()")
                    here.execute("SELECT pg_reload_conf()")
                return here.execute(ready, (slot,)).fetchone() == (True,)

            eventually(synchronised, 60, lambda: f"slot {slot} on the standby\n{self.log_path.read_text()[-2000:]}")

    def _copy(self, primary: PostgresServer, settings: Mapping[str, str]) -> None:
        data = self.directory / "data"
        where = f"host=127.0.0.1 port={primary.port} user=postgres"
        make_slot = ["--create-slot", f"--slot={STANDBY_SLOT}", "--wal-method=stream", "--checkpoint=fast", "--no-sync"]
        made = subprocess.run(
            self.account.command(
                [self.binaries / "pg_basebackup", "-d", where, "-D", data, *make_slot], death_signal=signal.SIGKILL
            ),
            cwd=self.directory,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        assert made.returncode == 0, made.stderr
        own = {
            # dbname is what the synchronisation of slots connects to; physical replication ignores it
            "primary_conninfo": f"{where} dbname=postgres application_name={STANDBY_SLOT}",
            "primary_slot_name": STANDBY_SLOT,
            "hot_standby_feedback": "on",
            "wal_receiver_status_interval": "1s",
            **({"sync_replication_slots": "on"} if self.major >= 17 else {}),
            **settings,
        }
        with (data / "postgresql.conf").open("a", encoding="utf-8") as file:
            for name, value in own.items():
                file.write(f"{name} = '{value.replace(chr(39), chr(39) * 2)}'\n")
        (data / "standby.signal").touch()
