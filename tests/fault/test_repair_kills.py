"""The bridge is killed in the middle of a repair: what was asked for is done by the next one, once."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from cdc.base.config.load import load
from cdc.bridge.asking.repair import RepairResult, repair_keys
from cdc.contract.naming import progress_topic
from cdc.contract.record import RepairKey
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.replay.backfills import read_published
from tests.support import versioned
from tests.support.deployment import Deploy
from tests.support.servers import Database
from tests.support.topic_damage import Damage, assert_topic_is_table
from tests.support.waiting import eventually

_ROWS = 3_000
_TABLE = "public.wide"
REPAIR = ("backfill.inside_repair:3",)


@pytest.mark.parametrize("crashpoint", [*REPAIR, "bridge.before_kafka_commit:40"])
def test_the_next_bridge_repairs_the_rest(
    crashpoint: str, database: Database, deploy: Deploy, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Or who asks would run a bridge of his own beside the next one, and fence it, where that takes long to start
    monkeypatch.setattr("cdc.bridge.asking.repair.UNTAKEN_S", 150)
    versioned.create(database, _ROWS)
    deployment = deploy()
    deployment.start_bridge()
    deployment.wait_backfilled()
    deployment.bridge.stop()
    damage = Damage(deployment)
    keys = [b'{"id":%d}' % number for number in range(1, 2 * _ROWS)]
    for key in keys[::3]:
        damage.write(_TABLE, key, None)
    for key in keys[1::3]:
        damage.write(_TABLE, key, b'{"id":1,"version":-1,"pad":"forged","big":null}')
    damage.done()
    writer = versioned.Writer(database, 3, _ROWS)
    deployment.start_bridge(crashpoint=crashpoint)
    writer.start()

    def ask() -> RepairResult:
        wanted = [RepairKey(key) for key in keys]
        return repair_keys(load(deployment.config, {}), _TABLE, wanted, timeout_s=150, tell=lambda _: None)

    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(ask)
        eventually(lambda: deployment.bridge.ended or asked.done(), 120, deployment.bridge.stacks)
        assert deployment.bridge.wait() == -signal.SIGKILL
        deployment.start_bridge()
        result = asked.result(150)
    writer.finish()
    assert result.rows + result.tombstones + result.touched == len(keys)
    assert_topic_is_table(deployment, _TABLE)
    own = damage.others(deployment.records(_TABLE))
    assert versioned.VersionAudit().add(own).faults == []
    options = {"bootstrap.servers": deployment.bootstrap}
    assert read_published(BrokerAdmin(options), progress_topic(deployment.name), b"").repairs == ()
