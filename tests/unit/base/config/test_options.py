"""Every option: its default, values at its bounds, and the words an operator gets for a value beyond them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from cdc.base.config import Config, OtherTopic, load, replica_url
from cdc.base.errors import ConfigError
from tests.unit.base.config import columns_rows, debezium_rows, registry_rows, serve_rows, values_rows

BASE: dict[str, Any] = {
    "name": "shop",
    "source": {"dsn": "host=db dbname=shop user=cdc"},
    "kafka": {"bootstrap": "kafka:9092"},
    "registry": {"url": registry_rows.URL},
    "sink": {"dsn": "host=replica"},
    "view": {"store": "memory"},
}


def load_with(tmp_path: Path, key: str, value: Any) -> Config:
    content = {name: dict(part) if isinstance(part, dict) else part for name, part in BASE.items()}
    *sections, last = key.split(".")
    target = content
    for section in sections:
        target = target.setdefault(section, {})
    target[last] = value
    path = tmp_path / "cdc.yaml"
    path.write_text(yaml.safe_dump(content))
    return load(path, {})


def option(config: Config, key: str) -> Any:
    value: Any = config
    for part in key.split("."):
        value = getattr(value, "schema_name" if part == "schema" else part)
    return value


DEFAULTS = {
    **registry_rows.DEFAULTS,
    **serve_rows.DEFAULTS,
    **columns_rows.DEFAULTS,
    "delivery": "transactional",
    "source.dsn": None,
    "source.password": None,
    "source.password_file": None,
    "source.slot": "cdc_shop",
    "source.publication": "cdc_shop",
    "source.publication_mode": "filtered",
    "source.tables": ("public.*",),
    "source.exclude": (),
    "source.keys": {},
    "source.outbox": {},
    "source.messages": {},
    "source.streaming": False,
    "source.on_gap": "fail",
    "snapshot.mode": "initial",
    "snapshot.parallel": 2,
    "snapshot.wait_for_sink": True,
    "snapshot.dsn": None,
    "snapshot.password": None,
    "snapshot.password_file": None,
    "kafka.options": {},
    "kafka.password": None,
    "kafka.password_file": None,
    "topics.partitions": 4,
    "topics.replication_factor": 1,
    "topics.min_insync_replicas": 1,
    "topics.min_compaction_lag_ms": 60_000,
    "topics.max_compaction_lag_ms": 86_400_000,
    "topics.delete_retention_ms": 604_800_000,
    "topics.segment_ms": 3_600_000,
    "topics.min_cleanable_dirty_ratio": 0.3,
    "topics.max_message_bytes": 16_777_216,
    "topics.truncate": "tombstone",
    "topics.history": (),
    "topics.history_retention_ms": 2_592_000_000,
    "topics.names": {},
    "topics.format": "json",
    "topics.formats": {},
    "topics.key_format": "json",
    "topics.beyond": "refuse",
    "topics.envelope": "plain",
    "topics.cloudevents": False,
    **values_rows.DEFAULTS,
    **debezium_rows.DEFAULTS,
    "sink.url": None,
    "sink.password": None,
    "sink.password_file": None,
    "sink.schema": None,
    "sink.prefix": "",
    "sink.tables": {},
    "view.password": None,
    "view.password_file": None,
    "view.tables": ("*.*",),
    "view.exclude": (),
    "view.index": {},
    "view.topics": {},
    "http.host": "127.0.0.1",
    "http.bridge_port": None,
    "http.sink_port": None,
    "http.tokens_file": None,
}

REQUIRED = ("name", "kafka", "kafka.bootstrap", "registry.url", "view.store")
ONE_OF_TWO = {"sink.dsn"}
"""Required unless another option is given."""

ACCEPTED = [
    *registry_rows.ACCEPTED,
    *values_rows.ACCEPTED,
    *debezium_rows.ACCEPTED,
    *serve_rows.ACCEPTED,
    *columns_rows.ACCEPTED,
    ("name", "a"),
    ("name", "Shop_2" * 8),
    ("delivery", "idempotent"),
    ("source.slot", "a_1"),
    ("source.slot", "x" * 63),
    ("source.publication", "Any Name ü"),
    ("source.publication_mode", "all_tables"),
    ("source.publication_mode", "disabled"),
    ("source.tables", ("public.orders", "sales.*", "*.*")),
    ("source.exclude", ("public.log_*",)),
    ("source.keys", {"public.audit": ("region", "id")}),
    ("source.streaming", True),
    ("source.on_gap", "rebackfill"),
    ("snapshot.mode", "never"),
    ("snapshot.mode", "when_needed"),
    ("snapshot.parallel", 16),
    ("snapshot.wait_for_sink", False),
    ("kafka.bootstrap", "kafka-1:9092,kafka-2:9092"),
    ("kafka.options", {"linger.ms": 5, "compression.type": "lz4", "socket.nagle.disable": True, "x": 0.5}),
    ("topics.partitions", 1),
    ("topics.partitions", 1000),
    ("topics.replication_factor", 3),
    ("topics.min_compaction_lag_ms", 0),
    ("topics.min_compaction_lag_ms", 86_400_000),
    ("topics.max_compaction_lag_ms", 60_000),
    ("topics.delete_retention_ms", 0),
    ("topics.segment_ms", 100),
    ("topics.min_cleanable_dirty_ratio", 0.0),
    ("topics.min_cleanable_dirty_ratio", 1.0),
    ("topics.max_message_bytes", 1_048_588),
    ("topics.max_message_bytes", 47_185_920),
    ("topics.truncate", "ignore"),
    ("topics.truncate", "fail"),
    ("topics.history", ("public.orders", "audit.*")),
    ("topics.history_retention_ms", -1),
    ("topics.history_retention_ms", 60_000),
    ("topics.history_retention_ms", 3_155_760_000_000),
    ("topics.names", {"public.orders": "legacy-orders"}),
    ("topics.format", "avro"),
    ("topics.format", "json-schema"),
    ("topics.format", "protobuf"),
    ("topics.formats", {"public.orders": "avro", "public.notes": "json", "public.tags": "protobuf"}),
    ("topics.key_format", "avro"),
    ("topics.beyond", "text"),
    ("topics.envelope", "debezium"),
    ("topics.cloudevents", True),
    ("sink.schema", "mirror"),
    ("sink.prefix", "r_"),
    ("sink.tables", {"public.orders": "sales.orders_copy"}),
    ("view.store", "redis://redis:6379/3"),
    ("view.store", "rediss://view@redis:6379"),
    ("view.tables", ("public.orders", "sales.*")),
    ("view.tables", ()),
    ("view.exclude", ("public.log_*",)),
    ("view.index", {"public.orders": (("customer_id",), ("status", "placed_at"))}),
    ("http.host", "0.0.0.0"),
    ("http.bridge_port", 0),
    ("http.sink_port", 65535),
]

REFUSED = [
    *registry_rows.REFUSED,
    *values_rows.REFUSED,
    *debezium_rows.REFUSED,
    *serve_rows.REFUSED,
    *columns_rows.REFUSED,
    ("name", "shop-1", "write 1 to 48 letters, digits or underscores; found 'shop-1'"),
    ("name", "x" * 49, "write 1 to 48 letters"),
    ("name", 7, "should be a valid string; found 7"),
    ("delivery", "at once", "should be 'transactional' or 'idempotent'"),
    ("source.dsn", "", "must not be empty; found ********"),
    ("source.slot", "Slot", "lower-case letters, digits or underscores: PostgreSQL allows no others in a slot"),
    ("source.slot", "x" * 64, "write up to 63"),
    ("source.publication", "ü" * 32, "write at most 63 bytes"),
    ("source.on_gap", "ignore", "should be 'fail' or 'rebackfill'; found 'ignore'"),
    ("snapshot.mode", "always", "should be 'initial', 'never' or 'when_needed'; found 'always'"),
    ("snapshot.parallel", 0, "should be greater than or equal to 1; found 0"),
    ("snapshot.parallel", 17, "should be less than or equal to 16; found 17"),
    ("snapshot.wait_for_sink", "maybe", "should be a valid boolean"),
    ("snapshot.dsn", "", "must not be empty; found ********"),
    ("snapshot.password", "x", "a password is given without a dsn"),
    ("source.publication_mode", "some", "should be 'filtered', 'all_tables' or 'disabled'; found 'some'"),
    ("source.tables", ["orders"], "source.tables[0]: write schema.table with * for any characters"),
    ("source.tables", [], "list at least one schema.table pattern"),
    ("source.exclude", ["log"], "source.exclude[0]: write schema.table with *"),
    ("source.outbox", {"outbox": {}}, "source.outbox.outbox: write schema.table, for instance public.orders"),
    ("source.outbox", {"public.o": {"topic": "a b"}}, "write 1 to 249 letters, digits, dots, underscores or hyphens"),
    (
        "source.outbox",
        {"public.o": {"topic": "shop.{a}"}},
        'public.o → "shop.{a}" may collide with the topic of a table',
    ),
    ("source.outbox", {"public.o": {"key": ""}}, "must not be empty"),
    ("source.outbox", {"public.o": {"payload": "x" * 64}}, "write at most 63 bytes"),
    ("source.outbox", {"public.o": {"headers": {"id": "id"}}}, 'header "id" is written already'),
    ("source.outbox", {"public.o": {"delete": True}}, "delete"),
    ("source.messages", {"orders": {}}, "source.messages.orders.topic"),
    ("source.messages", {"orders": {"topic": "a b"}}, "write 1 to 249 letters, digits, dots"),
    ("source.messages", {"orders": {"topic": "shop.x"}}, 'orders → "shop.x" may collide with the topic of a table'),
    ("source.messages", {"orders": {"topic": "t", "content": "avro"}}, "should be 'raw' or 'json'; found 'avro'"),
    ("source.messages", {"orders": {"topic": "t", "key": "k"}}, "key"),
    ("source.messages", {" ": {"topic": "t"}}, "must not be empty"),
    ("source.messages", {"x" * 201: {"topic": "t"}}, "write at most 200 characters"),
    ("source.messages", {"cdc": {"topic": "t"}}, "cdc emits messages with this prefix itself"),
    ("source.messages", {"cdc-proof": {"topic": "t"}}, "cdc emits messages with this prefix itself"),
    ("source.keys", {"audit": ["id"]}, "source.keys.audit: write schema.table, for instance public.orders"),
    ("source.keys", {"public.audit": []}, "public.audit: list each key column once, at least one; got []"),
    ("source.keys", {"public.audit": ["a", "a"]}, "list each key column once"),
    ("kafka.bootstrap", "kafka-1:9092, kafka-2:9092", "several with commas and no spaces"),
    ("kafka.bootstrap", "", "write host:port"),
    ("kafka.options", {"linger.ms": [5]}, "kafka.options.linger.ms: write text, a number, true or false; found [5]"),
    ("kafka.options", {"linger.ms": None}, "write text, a number, true or false"),
    ("kafka.password", "pw", 'it would not be used: set options "security.protocol"'),
    ("topics.partitions", 0, "should be greater than or equal to 1; found 0"),
    ("topics.partitions", 1001, "should be less than or equal to 1000; found 1001"),
    ("topics.replication_factor", 0, "greater than or equal to 1"),
    ("topics.replication_factor", 32768, "less than or equal to 32767"),
    ("topics.min_insync_replicas", 0, "greater than or equal to 1"),
    ("topics.min_insync_replicas", 2, "min_insync_replicas (2) must be at most replication_factor (1)"),
    ("topics.min_compaction_lag_ms", -1, "greater than or equal to 0"),
    ("topics.min_compaction_lag_ms", 86_400_001, "must be at most max_compaction_lag_ms (86400000)"),
    ("topics.max_compaction_lag_ms", 0, "greater than or equal to 1"),
    ("topics.delete_retention_ms", -1, "greater than or equal to 0"),
    ("topics.segment_ms", 99, "greater than or equal to 100"),
    ("topics.min_cleanable_dirty_ratio", 1.1, "less than or equal to 1"),
    ("topics.max_message_bytes", 1_048_587, "greater than or equal to 1048588"),
    ("topics.max_message_bytes", 47_185_921, "less than or equal to 47185920"),
    ("topics.truncate", "drop", "should be 'tombstone', 'ignore' or 'fail'; found 'drop'"),
    ("topics.history", ["orders"], "write schema.table with * for any characters"),
    ("topics.history_retention_ms", 59_999, "write 60000 (a minute) to"),
    ("topics.history_retention_ms", -2, "or -1 for ever"),
    ("topics.history_retention_ms", 3_155_760_000_001, "(a century)"),
    ("topics.names", {"public.orders": "a b"}, "write 1 to 249 letters, digits, dots, underscores or hyphens"),
    ("topics.names", {"public.orders": "x" * 250}, "write 1 to 249"),
    ("topics.names", {"public.a": "t", "public.b": "t"}, 'public.a and public.b both lead to "t"'),
    ("topics.names", {"public.a": "shop.public.b"}, '"shop.public.b" may collide with another table'),
    ("topics.names", {"public.a": "shop.__progress"}, "or an internal topic"),
    ("topics.format", "xml", "should be 'json', 'avro', 'protobuf' or 'json-schema'"),
    ("topics.formats", {"orders": "avro"}, "write schema.table, for instance public.orders"),
    ("topics.key_format", "protobuf", "should be 'json' or 'avro'"),
    ("topics.beyond", "round", "should be 'refuse' or 'text'"),
    ("topics.cloudevents", "structured", "should be a valid boolean"),
    ("topics.envelope", "cloudevents", "should be 'plain' or 'debezium'"),
    ("sink", "host=x password=hunter2", "sink: expected keys and values below this key, found str"),
    ("sink.dsn", "", "must not be empty"),
    ("sink.dsn", None, "give one of dsn, for a replica on PostgreSQL, and url, for another database"),
    ("sink.url", "sqlite:///shop.db", "give one of dsn, for a replica on PostgreSQL, and url, for another database"),
    ("sink.url", "postgresql://db/shop", "write sqlite:/// or duckdb:/// and the path of a file, where"),
    ("sink.url", "postgresql:///shop", "a replica on PostgreSQL is named by dsn"),
    ("sink.url", "sqlite://", "write sqlite:/// or duckdb:/// and the path of a file, where"),
    ("sink.url", "sqlite:///shop.db?mode=ro", "write sqlite:/// or duckdb:/// and the path of a file, where"),
    ("sink.url", "sqlite:///:memory:", "name a file: what is in memory ends with the process"),
    ("sink.url", "duckdb:///:memory:", "name a file: what is in memory ends with the process"),
    ("sink.url", "mariadb+pymysql://db/shop", "write mariadb+pymysql://user@host:port/database"),
    ("sink.url", "mariadb+pymysql://cdc@db", "write mariadb+pymysql://user@host:port/database"),
    ("sink.url", "mysql+pymysql://cdc@db/shop/orders", "write mariadb+pymysql://user@host:port/database"),
    ("sink.url", "mariadb+pymysql://cdc@db:port/shop", "write mariadb+pymysql://user@host:port/database"),
    ("sink.url", "mariadb+pymysql://cdc:hunter2@db/shop", "url must not contain a password; give it as password or"),
    ("sink.url", "mariadb+pymysql://cdc@db/shop?charset=latin1", "url takes the parameters ssl_ca, ssl_cert, ssl_key"),
    ("sink.url", "mariadb://cdc@db/shop", "or mariadb+pymysql://user@host/database"),
    ("sink", {"url": "sqlite:///a.db", "password": "x"}, "a password is given, but a replica in a file needs none"),
    ("sink", {"url": "mariadb+pymysql://u@h/d", "schema": "m"}, "url names the only database of the replica; prefix"),
    ("sink", {"url": "sqlite:///a.db", "schema": "m"}, "SQLite has no schemas; prefix sets tables apart"),
    ("sink.schema", "", "must not be empty"),
    ("sink.schema", "x" * 64, "write at most 63 bytes"),
    ("sink.prefix", "x" * 64, "write at most 63 bytes"),
    ("sink.tables", {"public.orders": "orders"}, "write schema.table, for instance public.orders; found 'orders'"),
    ("sink.tables", {"public.a": "r.t", "public.b": "r.t"}, 'public.a and public.b both lead to "r.t"'),
    ("view.store", "", "must not be empty"),
    ("view.store", "mongodb://db", "write a folder, redis://host:port/db, or memory"),
    ("view.store", "redis://:hunter2@redis", "store must not contain the password"),
    ("view.password", "x", "only Redis needs one"),
    ("view.tables", ["orders"], "view.tables[0]: write schema.table with *"),
    ("view.exclude", ["orders"], "view.exclude[0]: write schema.table with *"),
    ("view.index", {"orders": ["id"]}, "write schema.table, for instance public.orders"),
    ("view.index", {"public.orders": [[]]}, "an index lists each of its columns once, at least one; got []"),
    ("view.index", {"public.orders": [list("abcdefghi")]}, "an index has at most 8 columns; got 9"),
    ("view.index", {"public.orders": [["a", "a"]]}, "an index lists each of its columns once"),
    ("view.index", {"public.orders": ["a", ["a"]]}, "an index is given twice"),
    ("view.topics", {"a b": {}}, "write 1 to 249 letters"),
    ("view.topics", {"shop.public.a": {}}, "is a topic of this bridge; choose its tables with view.tables"),
    ("view.topics", {"t": {"key": "avro"}}, "should be 'string', 'json' or 'bytes'"),
    ("view.topics", {"t": {"value": "avro"}}, "should be 'json', 'string' or 'bytes'"),
    ("http.host", "", "must not be empty"),
    ("http.bridge_port", -1, "greater than or equal to 0"),
    ("http.sink_port", 65536, "less than or equal to 65535"),
]


@pytest.mark.parametrize("key", DEFAULTS)
def test_default(tmp_path: Path, key: str) -> None:
    content = {name: part for name, part in BASE.items() if name != "source"}
    path = tmp_path / "cdc.yaml"
    path.write_text(yaml.safe_dump(content))
    assert option(load(path, {}), key) == DEFAULTS[key]


def test_every_option_has_a_default_here_or_is_required() -> None:
    schema = Config.model_json_schema()
    options = {"name", "delivery"}
    sections = (
        "source",
        "snapshot",
        "kafka",
        "topics",
        "values",
        "debezium",
        "registry",
        "sink",
        "view",
        "serve",
        "http",
    )
    for section in sections:
        options |= {f"{section}.{key}" for key in schema["$defs"][f"{section.capitalize()}Config"]["properties"]}
    assert options == (set(DEFAULTS) | set(REQUIRED) | ONE_OF_TWO) - {"source", "kafka"}, (
        "give each option a default or a requirement"
    )


def test_every_option_is_described() -> None:
    for section, definition in Config.model_json_schema()["$defs"].items():
        for key, said in definition["properties"].items():
            assert said.get("description"), f"{section}.{key} has no sentence under it in cdc/base/config/model.py"


@pytest.mark.parametrize(("key", "value"), ACCEPTED)
def test_accepted(tmp_path: Path, key: str, value: Any) -> None:
    given = list(value) if isinstance(value, tuple) else value
    if isinstance(given, dict):
        given = {name: list(part) if isinstance(part, tuple) else part for name, part in given.items()}
    assert option(load_with(tmp_path, key, given), key) == value


@pytest.mark.parametrize(("key", "value", "words"), REFUSED)
def test_refused(tmp_path: Path, key: str, value: Any, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_with(tmp_path, key, value)
    assert words in str(caught.value)
    assert key.partition(".")[0] in str(caught.value)
    assert str(tmp_path / "cdc.yaml") in str(caught.value)


@pytest.mark.parametrize("key", REQUIRED)
def test_required(tmp_path: Path, key: str) -> None:
    content = {name: dict(part) if isinstance(part, dict) else part for name, part in BASE.items()}
    section, _, last = key.rpartition(".")
    (content[section] if section else content).pop(last)
    path = tmp_path / "cdc.yaml"
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(ConfigError, match=rf"{key}: this key is required"):
        load(path, {})


def test_slot_and_publication_follow_the_name_in_lower_case(tmp_path: Path) -> None:
    config = load_with(tmp_path, "name", "Shop")
    assert (config.source.slot, config.source.publication) == ("cdc_shop", "cdc_shop")


def test_a_reader_of_topics_needs_no_source(tmp_path: Path) -> None:
    path = tmp_path / "cdc.yaml"
    path.write_text(yaml.safe_dump({name: part for name, part in BASE.items() if name != "source"}))
    with pytest.raises(ConfigError, match=r"source\.dsn is missing.*\n.*CDC_SOURCE__DSN"):
        load(path, {}).source.connection()
    with pytest.raises(ConfigError, match="a password is given without a dsn"):
        load(path, {"CDC_SOURCE__PASSWORD": "x"})


def test_the_folder_of_a_view_starts_at_the_configuration_file(tmp_path: Path) -> None:
    config = load_with(tmp_path, "view.store", "tables")
    assert config.view is not None
    assert config.view.store == str(tmp_path / "tables")


def test_an_index_is_a_column_or_several(tmp_path: Path) -> None:
    config = load_with(tmp_path, "view.index", {"public.orders": ["a", ["b", "c"]], "public.items": "a, b"})
    assert config.view is not None
    assert config.view.index == {"public.orders": (("a",), ("b", "c")), "public.items": (("a",), ("b",))}


def test_topics_of_other_programs_say_what_they_hold(tmp_path: Path) -> None:
    config = load_with(tmp_path, "view.topics", {"app-configs": {}, "prices": {"key": "json", "value": "bytes"}})
    assert config.view is not None
    assert config.view.topics == {
        "app-configs": OtherTopic(key="string", value="json"),
        "prices": OtherTopic(key="json", value="bytes"),
    }


def test_an_outbox_has_the_columns_of_debezium_and_is_no_table(tmp_path: Path) -> None:
    source = load_with(tmp_path, "source.outbox", {"public.outbox": {}}).source
    outbox = source.outbox["public.outbox"]
    assert (outbox.id, outbox.key, outbox.payload, outbox.headers) == ("id", "aggregateid", "payload", {})
    assert (outbox.topic, outbox.topic_prefix) == ("outbox.event.{aggregatetype}", "outbox.event.")
    assert source.exclude == ("public.outbox",)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("source.tables", ["public.outbox"], "public.outbox is in source.tables as well"),
        ("delivery", "idempotent", "source.outbox needs delivery: transactional"),
    ],
)
def test_an_outbox_does_not_go_with(tmp_path: Path, key: str, value: Any, said: str) -> None:
    path = tmp_path / "cdc.yaml"
    content = {**BASE, "source": {**BASE["source"], "outbox": {"public.outbox": {}}}}
    section, _, last = key.partition(".")
    path.write_text(yaml.safe_dump({**content, section: {**content[section], last: value} if last else value}))
    with pytest.raises(ConfigError, match=said):
        load(path, {})


def test_messages_need_kafka_transactions_and_a_prefix_may_begin_as_ours(tmp_path: Path) -> None:
    path = tmp_path / "cdc.yaml"
    content = {**BASE, "source": {**BASE["source"], "messages": {"cdcatalog": {"topic": "t"}}}}
    path.write_text(yaml.safe_dump(content))
    assert load(path, {}).source.messages["cdcatalog"].content == "raw"
    path.write_text(yaml.safe_dump(content | {"delivery": "idempotent"}))
    with pytest.raises(ConfigError, match=r"source\.messages needs delivery: transactional"):
        load(path, {})


def test_the_password_of_redis_is_kept_from_the_logs(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hunter2\n")
    path = tmp_path / "cdc.yaml"
    path.write_text(yaml.safe_dump(BASE | {"view": {"store": "redis://redis", "password_file": "secret"}}))
    config = load(path, {})
    assert config.secrets() == ("hunter2",)
    assert "hunter2" not in repr(config)


def test_no_sink_section_is_a_bridge_alone(tmp_path: Path) -> None:
    path = tmp_path / "cdc.yaml"
    path.write_text(yaml.safe_dump({name: part for name, part in BASE.items() if name != "sink"}))
    assert load(path, {}).sink is None


@pytest.mark.parametrize(("url", "path"), [("sqlite:///a/shop.db", "a/shop.db"), ("duckdb:////var/s.db", "/var/s.db")])
def test_the_file_of_a_replica_starts_at_the_configuration_file(tmp_path: Path, url: str, path: str) -> None:
    sink = load_with(tmp_path, "sink", {"url": url}).sink
    assert sink is not None
    assert sink.path == tmp_path / path
    with pytest.raises(ConfigError, match=r"this command knows replicas on PostgreSQL only"):
        sink.connection()


def test_the_server_of_a_replica(tmp_path: Path) -> None:
    url = "mariadb+pymysql://c%40dc@db.example:3307/shop%25?ssl_ca=ca.pem"
    sink = load_with(tmp_path, "sink", {"url": url, "password": "hunter2"}).sink
    assert sink is not None
    assert sink.path is None
    assert sink.url is not None
    found = replica_url.server_of(sink.url)
    assert found == ("c@dc", "db.example", 3307, "shop%", {"ssl_ca": str(tmp_path / "ca.pem")})
    plain = load_with(tmp_path, "sink", {"url": "mysql+pymysql://cdc@db/shop"}).sink
    assert plain is not None
    assert plain.url == "mysql+pymysql://cdc@db/shop"
    assert replica_url.server_of(plain.url).port == 3306


@pytest.mark.parametrize("sink", [{"dsn": "host=x"}, {"url": "sqlite:///a.db"}, {"url": "mariadb+pymysql://u@h/d"}])
def test_a_replica_in_any_database_puts_rows_aside(tmp_path: Path, sink: dict[str, str]) -> None:
    found = load_with(tmp_path, "sink", {**sink, "quarantine": {"public.t": {}, "public.u": {"budget": 10_000}}}).sink
    assert found is not None
    assert [(table, each.budget) for table, each in found.quarantine.items()] == [
        ("public.t", 100),
        ("public.u", 10_000),
    ]


def test_sink_table_where_another_listed_table_goes_by_default(tmp_path: Path) -> None:
    path = tmp_path / "cdc.yaml"
    content = BASE | {
        "source": BASE["source"] | {"tables": ["public.a", "public.b"]},
        "sink": {"dsn": "host=replica", "schema": "m", "prefix": "r_", "tables": {"public.a": "m.r_b"}},
    }
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(ConfigError, match=r'public.a → "m.r_b" is where public.b goes by default'):
        load(path, {})
    content["sink"]["tables"]["public.b"] = "m.r_a"
    path.write_text(yaml.safe_dump(content))
    assert load(path, {}).sink is not None


@pytest.mark.parametrize("option_name", ["transactional.id", "enable.idempotence", "acks", "isolation.level"])
def test_options_the_bridge_must_control(tmp_path: Path, option_name: str) -> None:
    with pytest.raises(ConfigError, match=rf'"{option_name}" cannot be set here: '):
        load_with(tmp_path, "kafka.options", {option_name: "x"})


@pytest.mark.parametrize(
    ("option_name", "instead"),
    [("bootstrap.servers", "kafka.bootstrap"), ("sasl.password", "kafka.password"), ("partitioner", "murmur2_random")],
)
def test_options_with_a_key_of_their_own(tmp_path: Path, option_name: str, instead: str) -> None:
    with pytest.raises(ConfigError, match=rf'"{option_name}" cannot be set here: .*{instead}'):
        load_with(tmp_path, "kafka.options", {option_name: "x"})


def test_a_gap_cannot_be_healed_where_no_snapshot_may_be_taken(tmp_path: Path) -> None:
    path = tmp_path / "cdc.yaml"
    content = BASE | {"source": BASE["source"] | {"on_gap": "rebackfill"}, "snapshot": {"mode": "never"}}
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(ConfigError, match=r"on_gap: rebackfill publishes tables again, which snapshot\.mode: never"):
        load(path, {})


def test_a_history_needs_kafka_transactions(tmp_path: Path) -> None:
    path = tmp_path / "cdc.yaml"
    path.write_text(yaml.safe_dump(BASE | {"delivery": "idempotent", "topics": {"history": ["public.a"]}}))
    with pytest.raises(ConfigError, match=r"topics\.history needs delivery: transactional"):
        load(path, {})


def test_a_topic_where_the_history_of_another_table_goes(tmp_path: Path) -> None:
    path = tmp_path / "cdc.yaml"
    names = {"public.a": "orders", "public.b": "orders.history"}
    path.write_text(yaml.safe_dump(BASE | {"topics": {"names": names}}))
    assert load(path, {}).topics.names == names
    path.write_text(yaml.safe_dump(BASE | {"topics": {"names": names, "history": ["public.a"]}}))
    with pytest.raises(ConfigError, match=r'public\.b → "orders\.history" is the history topic of public\.a'):
        load(path, {})


@pytest.mark.parametrize(
    ("on_gap", "mode", "heals"),
    [
        ("fail", "initial", False),
        ("fail", "never", False),
        ("fail", "when_needed", True),
        ("rebackfill", "initial", True),
    ],
)
def test_who_heals_gaps(tmp_path: Path, on_gap: str, mode: str, heals: bool) -> None:
    path = tmp_path / "cdc.yaml"
    content = BASE | {"source": BASE["source"] | {"on_gap": on_gap}, "snapshot": {"mode": mode}}
    path.write_text(yaml.safe_dump(content))
    assert load(path, {}).heals_gaps is heals
