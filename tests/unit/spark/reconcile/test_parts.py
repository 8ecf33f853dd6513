"""Parts of a reconciliation that need no server: files between runs, options for the other Kafka client, SQL texts."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from cdc.contract.jobspec.deployment import JobColumn, JobTable, KafkaSettings
from cdc.contract.jobspec.keys_file import RepairableKey, read_keys, write_keys
from cdc.spark.errors import JobError
from cdc.spark.kafka_options import client_options, connector_options
from cdc.spark.reconcile.ledger import PassDone, PassLedger
from cdc.spark.report.model import Round
from cdc.spark.source.sql import condition, hashed, key_json, quoted

KEYS = [RepairableKey(b'{"id":1}', None), RepairableKey(b"\xff\x00", 3), RepairableKey(b"", None)]


def done(number: int) -> PassDone:
    looked = Round(number=0, snapshot="1:1:", lsn="0/1", keys=0, in_flight=0)
    return PassDone(number=number, folder="f", source_rows=5, live_keys=5, tombstones=0, round=looked, offsets=())


class TestKeysFile:
    def test_keeps_every_byte(self, tmp_path: Path) -> None:
        write_keys(tmp_path / "keys.jsonl", KEYS)
        assert read_keys(tmp_path / "keys.jsonl") == KEYS

    def test_leaves_nothing_unfinished(self, tmp_path: Path) -> None:
        write_keys(tmp_path / "keys.jsonl", KEYS)
        assert [each.name for each in tmp_path.iterdir()] == ["keys.jsonl"]


class TestLedger:
    def test_a_resumed_run_knows_what_is_done(self, tmp_path: Path) -> None:
        PassLedger(tmp_path).keep(done(2))
        again = PassLedger(tmp_path)
        assert again.done(2) == done(2)
        assert again.done(1) is None


class TestKafkaOptions:
    def test_tls_and_sasl_in_the_other_clients_words(self) -> None:
        options = {
            "bootstrap.servers": "b:9092",
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": "/ca.pem",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": 'a"b',
            "compression.type": "lz4",
        }
        kafka = KafkaSettings(options=options, password=SecretStr("s\\e"))
        assert connector_options(kafka) == {
            "kafka.bootstrap.servers": "b:9092",
            "kafka.security.protocol": "SASL_SSL",
            "kafka.max.poll.records": "5000",
            "kafka.max.partition.fetch.bytes": "8388608",
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": "/ca.pem",
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required"
            r' username="a\"b" password="s\\e";',
        }
        assert client_options(kafka) == {**options, "sasl.password": "s\\e"}

    @pytest.mark.parametrize(
        ("option", "words"), [("ssl.key.location", "ssl.key.location"), ("sasl.mechanism", "GSSAPI")]
    )
    def test_what_has_no_counterpart_is_refused(self, option: str, words: str) -> None:
        kafka = KafkaSettings(options={"bootstrap.servers": "b:9092", option: "GSSAPI"})
        with pytest.raises(JobError, match=words):
            connector_options(kafka)


class TestSql:
    def test_names_are_quoted(self) -> None:
        assert quoted("s", 'a"b') == '"s"."a""b"'

    def test_a_key_with_odd_names(self) -> None:
        column = JobColumn(name='it\'s \\ "so"', sql_type="int4", kind="number")
        table = JobTable(namespace="p", name="t", topic="t", key=(column.name,), columns=(column,))
        text = key_json(table)
        assert "E'{\"it''s \\\\\\\\ \\\\\"so\\\\\"\":'" in text

    def test_a_condition_may_hold_what_the_driver_takes_for_a_parameter(self) -> None:
        plain = """note = 'why?' AND "odd?" = E'it\\'s?' AND n > $$?$$::int /* ? */ -- so?"""
        assert condition(plain) == f"({plain}\n)"
        assert condition("data ? 'a' OR data ?| '{b?}'") == "(data ?? 'a' OR data ??| '{b?}'\n)"

    def test_a_hash_fits_a_bigint(self) -> None:
        assert hashed("d") == "('x' || pg_catalog.left(d, 15))::bit(60)::bigint"
