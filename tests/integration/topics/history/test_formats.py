"""Commands that read topics answer alike whatever form the records have, and they need no registry for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from cdc.base.lsn import LSN
from cdc.lab.stack import RegistryServer
from tests.integration.topics.history.reading import fold, history_of
from tests.integration.topics.lookup.test_commands import told, watching
from tests.support.deployment import Deploy, Deployment
from tests.support.forms import FORMS, deploy_in
from tests.support.serve_process import ServeProcess
from tests.support.topic_damage import Damage
from tests.support.waiting import eventually

_VALUES: Final = {"timestamps": "iso", "numeric": "number", "bytea": "base64", "documents": "string"}
WAYS: Final[Mapping[str, Mapping[str, Any]]] = {
    "json": {},
    "avro": {},
    "protobuf": {},
    "json-schema": {},
    "avro keys": {"topics": {"format": "avro"}},
    "values": {"values": _VALUES},
}
"""What the configuration has besides the form."""
FIRST: Final = {"id": 1, "n": "1.50", "at": "2026-01-02 03:04:05.6+00", "raw": "\\x00ff", "doc": {"a": "é"}}
"""The row that does not change once there is a history."""


def kept(deploy: Deploy, way: str, registry: RegistryServer) -> tuple[Deployment, LSN, LSN]:
    """A deployment that has ended, and whose history began after its topic did; two positions of that history."""
    topics = {"partitions": 1, **WAYS[way].get("topics", {})}
    more = {"view": {"store": "view", "tables": ["public.t"]}, "serve": {"port": 0}}
    form = way if way in FORMS else "json"
    deployment = deploy_in(form, deploy, registry, **{**WAYS[way], **more, "topics": topics})
    source = deployment.source
    source.execute("CREATE TABLE t (id integer PRIMARY KEY, n numeric(6,2), at timestamptz, raw bytea, doc jsonb)")
    source.execute("INSERT INTO t VALUES (1, 1.50, '2026-01-02 03:04:05.6Z', '\\x00ff', '{\"a\": \"é\"}')")
    source.execute("INSERT INTO t VALUES (2, 0)")
    deployment.start_bridge()
    deployment.wait_backfilled("public.t")
    deployment.bridge.stop()
    deployment.settings["topics"]["history"] = ["public.t"]
    deployment.write()
    deployment.start_bridge()
    source.execute("UPDATE t SET n = 2 WHERE id = 2")
    between = deployment.now()
    source.execute("ALTER TABLE t ADD COLUMN more text")
    source.execute("UPDATE t SET id = 3, more = 'x' WHERE id = 2")
    source.execute("DELETE FROM t WHERE id = 3")
    end = deployment.wait_published()
    deployment.bridge.stop()
    if "registry" in deployment.settings:
        deployment.settings["registry"] = {"url": "http://127.0.0.1:1"}
        deployment.write()
    return deployment, between, end


@pytest.mark.parametrize("way", WAYS)
def test_each_command_answers(deploy: Deploy, registry: RegistryServer, tmp_path: Path, way: str) -> None:
    deployment, between, end = kept(deploy, way, registry)

    def history(key: str, *options: object) -> list[Any]:
        said = deployment.command("history", "public.t", key, "--json", *map(str, options))
        return [json.loads(line) for line in said.splitlines() if line.startswith("{")]

    # The history has no record of this row: it is read from the state topic
    (then,) = history("1", "--as-of", end)
    assert then["row"] == FIRST
    assert history("1") == []
    assert [each["op"] for each in history("2")] == ["u", "d"]
    assert history("2", "--as-of", between)[0]["row"] == {"id": 2, "n": "2.00", "at": None, "raw": None, "doc": None}
    assert history("2", "--as-of", end)[0]["row"] is None
    assert [(each["op"], (each["new"] or {}).get("more")) for each in history("3")] == [("c", "x"), ("d", None)]
    assert fold(history_of(deployment, "public.t")) == {}
    got = json.loads(deployment.command("get", "public.t", "1", "--json"))
    assert (got["key"], got["row"]) == ({"id": 1}, FIRST)
    assert "no such row" in deployment.command("get", "public.t", "3", code=1)
    with watching("public.t", "-c", deployment.config, "--from-beginning", "--json") as process:
        seen = [told(process) for _ in range(6)]
    assert seen[0]["row"] == FIRST
    rows = [(each["key"]["id"], each["op"], each["row"] and each["row"].get("more")) for each in seen]
    assert rows[1:3] == [(2, "backfill", None), (2, "update", None)]
    assert rows[3:] == [(2, "update", None), (3, "update", "x"), (3, "delete", None)]
    topic = deployment.topic("public.t")
    for command in ("inspect", "tombstones", "estimate", "rebuild-test", "partitioner", "plan"):
        deployment.command("topics", command, topic)
    said = deployment.command("topics", "lint", topic, "--json", code=1)
    assert [each["code"] for each in json.loads(said)["topics"][0]["findings"]] == ["one_replica"]
    service = ServeProcess(deployment.config, tmp_path / "serve.log")
    service.start()
    try:
        with service.client() as client:
            page = "/v1/tables/public.t/rows/1"
            eventually(lambda: client.get(page).status_code == 200, message=service.tail)
            assert client.get(page).json() == FIRST
            assert client.get(page, params={"as_of": str(between)}).json() == FIRST
    finally:
        service.kill()


def test_a_damaged_row_is_refused_in_words(deploy: Deploy, registry: RegistryServer) -> None:
    """Nothing of it is shown as the row of that moment."""
    deployment, between, _ = kept(deploy, "avro", registry)
    newest = [each for each in deployment.records("public.t") if each.key == b'{"id":1}'][-1]
    damage = Damage(deployment)
    damage.write("public.t", b'{"id":1}', (newest.value or b"")[:-3], header=newest.header)
    damage.done()
    said = deployment.command("history", "public.t", "1", "--as-of", str(between), code=1)
    assert "is not the bridge's" in said
