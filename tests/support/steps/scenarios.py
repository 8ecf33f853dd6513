"""What leads a process to a step: how the deployment is brought there, which process is armed, where it may stop."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cdc.contract.naming import progress_topic
from cdc.contract.record import RepairKey
from cdc.contract.repair import parts_of
from cdc.kafka.publish.requests import write_repair
from tests.support.steps.trial import Trial
from tests.support.steps.world import NEW_KEY, OTHER_ANEW
from tests.support.waiting import eventually

_BRIDGE: Final = {"bridge.before_kafka_commit": 5, "bridge.after_kafka_commit": 5, "bridge.after_confirm": 4}
_ANEW: Final = {**_BRIDGE, "bridge.inside_begin_anew": 2}
_SINK: Final = {"sink.before_apply": 3, "sink.before_replica_commit": 3, "sink.after_replica_commit": 3}


@dataclass(frozen=True)
class Scenario:
    """How a step is reached.

    Attributes:
        armed: the process that stops there.
        steps: crash points, with the highest visit that is reached nearly always.
        prepare: comes before the armed process is started.
        lead: comes after that.
        is_noticed_late: see ``Disturbance``.
    """

    armed: str
    steps: dict[str, int]
    prepare: Callable[[Trial], None]
    lead: Callable[[Trial], None]
    is_noticed_late: bool = False


def _nothing(_: Trial) -> None:
    pass


def _captured(trial: Trial) -> None:
    """All tables are in their topics, and the bridge does not run."""
    _running(trial)
    trial.bridge.stop()


def _captured_and_written(trial: Trial) -> None:
    _captured(trial)
    trial.writer.write(10)


def _slot_dropped(trial: Trial) -> None:
    _captured(trial)
    trial.source.execute(f"SELECT pg_drop_replication_slot('{trial.deployment.slot()}')")
    trial.writer.write(10)


def _mirrored(trial: Trial) -> None:
    """The bridge runs, and the sink has made a cut and does not run."""
    _running(trial)
    if not trial.sink.pid:
        trial.sink.start()
    trial.deployment.wait_mirrored()
    trial.sink.stop()
    trial.writer.write(10)


def _running(trial: Trial) -> None:
    if not trial.bridge.pid:
        trial.deployment.start_bridge()
        trial.deployment.wait_backfilled()


def _write(trial: Trial) -> None:
    trial.writer.write(25)


def _truncate(trial: Trial) -> None:
    trial.writer.write(3)
    trial.in_source("TRUNCATE t, pair")
    trial.writer.write(5)


def _swap(trial: Trial) -> None:
    trial.in_source("BEGIN; ALTER TABLE t RENAME TO t_old; ALTER TABLE t_new RENAME TO t; COMMIT")
    trial.in_source("UPDATE t SET n = 8 WHERE id = 1")
    trial.writer.write(5)


def _recreate(trial: Trial) -> None:
    trial.in_source(OTHER_ANEW)
    trial.writer.write(5)


def _new_key(trial: Trial) -> None:
    trial.in_source(NEW_KEY)
    trial.in_source("UPDATE t SET n = 8 WHERE id = 1")
    trial.writer.write(5)


def _sweep(trial: Trial) -> None:
    eventually(lambda: trial.armed.ended or trial.armed.is_stopped or "streaming" in trial.armed.said(), 30)
    trial.request("public.t", "public.pair")
    trial.writer.write(10)


def _repair(trial: Trial) -> None:
    eventually(lambda: trial.armed.ended or trial.armed.is_stopped or "streaming" in trial.armed.said(), 30)
    keys = [RepairKey(b'{"id":%d}' % number) for number in range(1, 1500)]
    options = {"bootstrap.servers": trial.deployment.bootstrap}
    write_repair(options, progress_topic(trial.deployment.name), parts_of(uuid.uuid4().hex, "public.other", keys))
    trial.writer.write(10)


SCENARIOS: Final[dict[str, Scenario]] = {
    "stream": Scenario("bridge", _BRIDGE, _captured_and_written, _write),
    "initial": Scenario("bridge", {**_BRIDGE, "backfill.before_chunk_done": 5}, _nothing, _write),
    "truncate": Scenario("bridge", {**_BRIDGE, "bridge.inside_truncate": 1}, _captured, _truncate),
    "swap": Scenario("bridge", _ANEW, _captured, _swap, True),
    "recreate": Scenario("bridge", _ANEW, _captured, _recreate, True),
    "new_key": Scenario("bridge", _ANEW, _captured, _new_key, True),
    "gap": Scenario(
        "bridge", {**_BRIDGE, "backfill.before_chunk_done": 4, "backfill.inside_sweep": 1}, _slot_dropped, _write
    ),
    "sweep": Scenario(
        "bridge", {"backfill.before_chunk_done": 2, "backfill.inside_sweep": 1, **_BRIDGE}, _captured, _sweep
    ),
    "repair": Scenario("bridge", {"backfill.inside_repair": 2, **_BRIDGE}, _captured, _repair),
    "mirror": Scenario("sink", _SINK, _mirrored, _write),
    "mirror_swap": Scenario("sink", _SINK, _mirrored, _swap, True),
    "mirror_truncate": Scenario("sink", _SINK, _mirrored, _truncate),
}
