"""What happens to the world while a process stands between two steps.

Each disturbance is done while the process is stopped. ``mend`` names the tables whose rows it changed without a word in
the stream: there the documentation asks for ``cdc backfill TABLE --sweep``, and the trial does that.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from confluent_kafka.admin import AdminClient, NewTopic
from psycopg import Error

from tests.support.steps.trial import Trial
from tests.support.steps.world import NEW_KEY, OTHER_ANEW, SWAP
from tests.support.waiting import eventually

_LOCKED_S: Final = 1.5
_HELD_S: Final = 5.0


@dataclass(frozen=True)
class Disturbance:
    """What to do.

    Attributes:
        act: is called while the process stands at its step.
        mend: tables to backfill afterwards.
        is_noticed_late: the watch of the tables sees it, not the stream.
        only: processes that it concerns.
    """

    act: Callable[[Trial], None]
    mend: tuple[str, ...] = ()
    is_noticed_late: bool = False
    only: tuple[str, ...] = ("bridge", "sink")


def statement(text: str, *mend: str, is_noticed_late: bool = False) -> Disturbance:
    """SQL in the source, by somebody who waits a moment for a lock, and tries again."""

    def act(trial: Trial) -> None:
        trial.in_source(text)

    return Disturbance(act, mend, is_noticed_late)


def _sigterm(trial: Trial) -> None:
    trial.armed.signal(signal.SIGTERM)


def _sigkill(trial: Trial) -> None:
    trial.armed.kill()


def _new_session(trial: Trial) -> None:
    trial.in_source(
        "CREATE TABLE joins (id int PRIMARY KEY, n int); INSERT INTO joins SELECT generate_series(1, 30), 0"
    )
    trial.armed.signal(signal.SIGHUP)


def _walsender_ends(trial: Trial) -> None:
    trial.source.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name LIKE 'cdc %'"
    )


def _replica_sessions_end(trial: Trial) -> None:
    trial.deployment.replica.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
        " AND pid <> pg_backend_pid()"
    )


def _locked(trial: Trial) -> None:
    """Somebody holds the table for a moment after the process goes on."""
    connection = trial.source.connect(autocommit=False, options="-c lock_timeout=2s")
    try:
        connection.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
    except Error:  # the process itself stands in a transaction on that table
        connection.close()
        return
    timer = threading.Timer(_LOCKED_S, connection.close)
    timer.start()
    trial.later.append(timer.join)


def _replica_locked(trial: Trial) -> None:
    """Somebody keeps rows out of a replica table until the sink has left it out, or a little longer than it waits."""
    connection = trial.deployment.replica.connect(autocommit=False, options="-c lock_timeout=2s")
    try:
        connection.execute("LOCK TABLE t IN SHARE MODE")
    except Error:  # the sink itself stands in a transaction on that table, or it is not there yet
        connection.close()
        return
    timer = threading.Timer(_HELD_S, connection.close)
    timer.start()
    trial.later.append(timer.join)


def _long_transaction(trial: Trial) -> None:
    """A transaction that began before and commits after the step."""
    connection = trial.source.connect(autocommit=False, options="-c lock_timeout=300ms")
    try:
        connection.execute("SAVEPOINT one")
        connection.execute("UPDATE other SET n = n + 100 WHERE id % 3 = 0")
        connection.execute("UPDATE t SET n = n + 100 WHERE id % 3 = 0")
    except Error:
        connection.close()
        return

    def commit() -> None:
        connection.commit()
        connection.close()

    trial.later.append(commit)


def _prepared_transaction(trial: Trial) -> None:
    if int(trial.source.execute("SHOW max_prepared_transactions")[0][0]) == 0:
        return _long_transaction(trial)
    trial.in_source("BEGIN; UPDATE other SET n = n + 50 WHERE id % 2 = 0; PREPARE TRANSACTION 'trial'")

    def commit() -> None:
        trial.source.execute("COMMIT PREPARED 'trial'")

    trial.later.append(commit)
    return None


def _unpublished_for_a_moment(trial: Trial) -> None:
    name = trial.publication
    trial.in_source(f"ALTER PUBLICATION {name} DROP TABLE ONLY other")
    trial.in_source("UPDATE other SET n = n + 7 WHERE id % 2 = 0; DELETE FROM other WHERE id % 9 = 0")
    trial.in_source(f"ALTER PUBLICATION {name} ADD TABLE ONLY other")


def _publication_remade(trial: Trial) -> None:
    name = trial.publication
    tables = trial.source.execute(f"SELECT tablename FROM pg_publication_tables WHERE pubname = '{name}'")
    if not tables:
        return
    trial.in_source(f"DROP PUBLICATION {name}")
    trial.in_source("UPDATE other SET n = n + 7 WHERE id % 2 = 0; DELETE FROM other WHERE id % 9 = 0")
    only = ", ".join(f"ONLY {table}" if table != "parts" else table for (table,) in tables)
    trial.in_source(f"CREATE PUBLICATION {name} FOR TABLE {only} WITH (publish_via_partition_root = true)")


def _slot_lost(trial: Trial) -> None:
    trial.bridge.kill()
    eventually(lambda: not trial.slot_is_active())
    slot = trial.deployment.slot()
    trial.source.execute(
        f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '{slot}'"
    )
    trial.writer.write(5)


def _topic_anew(trial: Trial) -> None:
    """The topic of a table is deleted and made again while the bridge is away."""
    trial.bridge.kill()
    topic, admin = (
        trial.deployment.topic("public.other"),
        AdminClient({"bootstrap.servers": trial.deployment.bootstrap}),
    )
    if topic not in admin.list_topics(timeout=10).topics:
        return
    admin.delete_topics([topic])[topic].result()
    eventually(lambda: topic not in admin.list_topics(timeout=10).topics)
    config = {"cleanup.policy": "compact"}
    eventually(
        lambda: _created(admin, NewTopic(topic, trial.deployment.settings["topics"]["partitions"], 1, config=config))
    )


def _created(admin: AdminClient, topic: NewTopic) -> bool:
    """Whether it could be made: the broker refuses while the old one of that name is being deleted."""
    return admin.create_topics([topic])[topic.topic].exception(30) is None


def _second_bridge(trial: Trial) -> None:
    """Another bridge waits, the first one dies, the second takes over and is killed in turn later."""
    second = trial.second_bridge()
    second.start()
    trial.bridge.kill()
    eventually(lambda: second.ended or "streaming" in second.said(), 30, second.tail)
    trial.writer.write(5)
    second.kill()


DISTURBANCES: Final[dict[str, Disturbance]] = {
    "nothing": Disturbance(lambda _: None),
    "sigterm": Disturbance(_sigterm),
    "sigkill": Disturbance(_sigkill),
    "new_session": Disturbance(_new_session, only=("bridge",)),
    "connections_end": Disturbance(_walsender_ends, only=("bridge",)),
    "replica_sessions_end": Disturbance(_replica_sessions_end, only=("sink",)),
    "second_bridge": Disturbance(_second_bridge, only=("bridge",)),
    "slot_lost": Disturbance(_slot_lost),
    "topic_anew": Disturbance(_topic_anew),
    "publication_without_a_table": Disturbance(_unpublished_for_a_moment, is_noticed_late=True, only=("bridge",)),
    "publication_remade": Disturbance(_publication_remade, is_noticed_late=True, only=("bridge",)),
    "locked": Disturbance(_locked),
    "replica_locked": Disturbance(_replica_locked, only=("sink",)),
    "long_transaction": Disturbance(_long_transaction),
    "prepared_transaction": Disturbance(_prepared_transaction),
    "truncate": statement("TRUNCATE t, other"),
    "truncate_and_fill": statement(
        "BEGIN; TRUNCATE t; INSERT INTO t SELECT i, -i, 3 FROM generate_series(1, 50) i; COMMIT"
    ),
    "swap": statement(SWAP, is_noticed_late=True),
    "drop": statement("DROP TABLE other"),
    "drop_and_make": statement(OTHER_ANEW, is_noticed_late=True),
    "rename": statement("ALTER TABLE t RENAME TO renamed", is_noticed_late=True),
    "rename_there_and_back": statement(
        "ALTER TABLE t RENAME TO away; UPDATE away SET n = n + 1 WHERE id % 4 = 0; ALTER TABLE away RENAME TO t",
        is_noticed_late=True,
    ),
    "add_column": statement("ALTER TABLE t ADD COLUMN more text DEFAULT 'more'", "public.t"),
    "drop_column": statement("ALTER TABLE t DROP COLUMN note", "public.t"),
    "drop_toasted_column": statement("ALTER TABLE t DROP COLUMN big", "public.t"),
    "rename_toasted_column": statement("ALTER TABLE t RENAME COLUMN big TO large", "public.t"),
    "new_key": statement(NEW_KEY, is_noticed_late=True),
    "identity_full": statement("ALTER TABLE t REPLICA IDENTITY FULL"),
    "detach_partition": statement("ALTER TABLE parts DETACH PARTITION parts_low", "public.parts"),
}
