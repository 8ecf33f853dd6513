"""A deployment on servers of its own, and what may happen to it: a server that stands still, a lock, a full disk …"""

from __future__ import annotations

import json
import signal
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import psutil
from psycopg.conninfo import make_conninfo

from cdc.lab.stack import KafkaBroker, PostgresServer
from cdc.lab.stack.embedded import free_port
from tests.support.bridge_process import CdcProcess
from tests.support.cut_wire import Wire
from tests.support.deployment import Deployment, deployed
from tests.support.process_tree import family, send
from tests.support.serve_process import ServeProcess
from tests.support.servers import OwnStack, fresh_database
from tests.support.small_disk import enlarge, owner_of, small_disk
from tests.support.waiting import eventually

SINK_ROLE: Final = "mirror_of_what_is_said"
"""A role of its own, because from a superuser no right can be taken."""


class World:
    """A deployment on servers of its own, with a bridge, a sink, and a view that is served."""

    def __init__(
        self,
        kafka: KafkaBroker,
        source: PostgresServer,
        replica: PostgresServer,
        wires: Mapping[str, Wire],
        live: Deployment,
        serve: ServeProcess,
    ) -> None:
        self.kafka, self.source_server, self.replica_server = kafka, source, replica
        self.wires, self.live, self.serve = wires, live, serve
        self.ports = {
            "bridge": live.settings["http"]["bridge_port"],
            "sink": live.settings["http"]["sink_port"],
            "serve": live.settings["serve"]["port"],
        }

    def process(self, name: str) -> CdcProcess:
        return {"bridge": self.live.bridge, "sink": self.live.sink, "serve": self.serve}[name]

    def walsender(self) -> int:
        return int(self.live.source.execute("select active_pid from pg_replication_slots")[0][0])

    def change(self) -> None:
        """Something to move."""
        self.live.source.execute("update items set note = clock_timestamp()::text where id = 1")

    def get(self, name: str, path: str) -> tuple[int, str]:
        """Status and body; 0 of a process that does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.ports[name]}{path}", timeout=2) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def shown(self, name: str) -> dict[str, Any]:
        """What the page of this process shows."""
        code, body = self.get(name, "/dashboard/state")
        return ((json.loads(body)["deployments"] or [None])[0] or {}) if code == 200 else {}


@contextmanager
def whole_world(folder: Path) -> Iterator[World]:
    """All of it, up and mirrored."""
    servers = OwnStack()
    ports = [free_port() for _ in range(3)]
    with ExitStack() as ends:
        ends.callback(servers.close)
        kafka, source_server, replica_server = servers.kafka(), servers.postgres(), servers.postgres()
        source, replica = (ends.enter_context(fresh_database(each)) for each in (source_server, replica_server))
        source.execute("create table items (id integer primary key, note text)")
        source.execute("insert into items values (1, 'one'), (2, 'two')")
        replica.execute(f"create role {SINK_ROLE} login")
        replica.execute(f"alter database {replica.name} owner to {SINK_ROLE}")
        replica.execute(f"alter schema public owner to {SINK_ROLE}")
        wires = {
            name: ends.enter_context(Wire("127.0.0.1", server.port))
            for name, server in (("source", source_server), ("replica", replica_server))
        }
        through = {"host": "127.0.0.1", "sslmode": "disable"}
        sections: dict[str, dict[str, Any]] = {
            "source": {"dsn": make_conninfo(source.dsn, port=wires["source"].port, **through)},
            "sink": {"dsn": make_conninfo(replica.dsn, port=wires["replica"].port, user=SINK_ROLE, **through)},
            "http": {"bridge_port": ports[0], "sink_port": ports[1]},
            "view": {"store": str(folder / "view")},
            "serve": {"port": ports[2]},
            "topics": {"partitions": 1},
        }
        live = ends.enter_context(deployed(source, kafka.bootstrap, replica, folder, sections))
        serve = ServeProcess(live.config, folder / "serve.log")
        live.start()
        ends.callback(serve.kill)
        serve.start()
        live.wait_mirrored()
        made = World(kafka, source_server, replica_server, wires, live, serve)
        eventually(lambda: made.get("serve", "/ready")[0] == 200)
        yield made


@contextmanager
def stopped(*pids: int) -> Iterator[None]:
    """As a machine whose disk is gone: connections stay, and nobody answers."""
    trees = [each for pid in pids for each in family(pid)]
    send(trees, signal.SIGSTOP)
    try:
        yield
    finally:
        send(trees, signal.SIGCONT)


@contextmanager
def locked(world: World) -> Iterator[None]:
    """Somebody holds the replica table."""
    with world.live.replica.connect() as holder, holder.transaction():
        holder.execute("lock table items in access exclusive mode")
        yield


@contextmanager
def cut(wire: Wire) -> Iterator[None]:
    """A network that loses all it is given; behind it, connections are forgotten."""
    wire.cut()
    try:
        yield
    finally:
        wire.mend()


@contextmanager
def killed(process: CdcProcess) -> Iterator[None]:
    process.kill()
    try:
        yield
    finally:
        process.start()


@contextmanager
def killed_server(server: KafkaBroker | PostgresServer) -> Iterator[None]:
    """As by a machine that restarts. A broker with a full disk ends, too."""
    server.kill()
    try:
        yield
    finally:
        server.restart()


@contextmanager
def revoked(world: World) -> Iterator[None]:
    """The sink's role may no longer write one of its tables."""
    replica = world.live.replica
    replica.execute(f"revoke insert, update, delete on items from {SINK_ROLE}")
    try:
        yield
    finally:
        replica.execute(f"grant insert, update, delete on items to {SINK_ROLE}")
        world.live.sink.stop()
        world.live.sink.start()


@contextmanager
def full(world: World) -> Iterator[None]:
    """The disk of one replica table is full, and rows come that do not fit."""
    live = world.live
    with tempfile.TemporaryDirectory() as folder, small_disk(disk := Path(folder), 4, owner_of(world.replica_server)):
        live.replica.execute("create tablespace small location '" + str(disk) + "'")
        live.replica.execute("alter table items set tablespace small")
        live.source.execute("insert into items select i, repeat(md5(i::text), 60) from generate_series(10, 9999) i")
        try:
            yield
        finally:
            enlarge(disk)
            live.assert_equal("public.items")
            live.replica.execute("alter table items set tablespace pg_default")
            live.replica.execute("drop tablespace small")


@contextmanager
def slow(world: World) -> Iterator[None]:
    """The replica's commits take long, as on a disk that is worn out, or while a synchronous standby is away."""
    replica = world.live.replica
    body = "create or replace function slow() returns trigger language plpgsql as $$begin {} return null; end$$"
    trigger = "create constraint trigger slow after insert or update on items deferrable initially deferred"
    replica.execute(body.format("perform pg_sleep(15);"))
    replica.execute(f"{trigger} for each row execute function slow()")
    try:
        yield
    finally:
        replica.execute(body.format(""))


@contextmanager
def one_stopped(pid: int) -> Iterator[None]:
    """This process alone."""
    psutil.Process(pid).send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        psutil.Process(pid).send_signal(signal.SIGCONT)
