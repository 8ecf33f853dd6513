"""File and environment together: what wins, what is refused, and where an error says it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.base.config import Config, load
from cdc.base.errors import ConfigError

MINIMAL = """\
name: shop
source:
  dsn: host=db
kafka:
  bootstrap: kafka:9092
"""


@pytest.fixture
def write(tmp_path: Path):
    def write_file(text: str) -> Path:
        path = tmp_path / "cdc.yaml"
        path.write_text(text)
        return path

    return write_file


def refusal(path: Path | None, environ: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load(path, environ or {})
    assert caught.value.__cause__ is None or isinstance(caught.value.__cause__, OSError)
    return str(caught.value)


def test_environment_wins_over_the_file(write) -> None:
    config = load(write(MINIMAL), {"CDC_SOURCE__DSN": "host=other", "CDC_TOPICS__PARTITIONS": "8"})
    assert config.source.dsn is not None
    assert config.source.dsn.get_secret_value() == "host=other"
    assert config.topics.partitions == 8
    assert config.kafka.bootstrap == "kafka:9092"


def test_environment_alone() -> None:
    environ = {
        "CDC_NAME": "shop",
        "CDC_SOURCE__DSN": "host=db",
        "CDC_SOURCE__TABLES": "public.a, sales.*",
        "CDC_SOURCE__KEYS": '{"public.Audit": ["id"]}',
        "CDC_KAFKA__BOOTSTRAP": "kafka:9092",
        "CDC_KAFKA__OPTIONS": '{"linger.ms": 5}',
        "CDC_KAFKA__OPTIONS__COMPRESSION.TYPE": "lz4",
        "CDC_SINK__DSN": "host=replica",
        "CDC_SINK__SCHEMA": "mirror",
    }
    config = load(None, environ)
    assert config.source.tables == ("public.a", "sales.*")
    assert config.source.keys == {"public.Audit": ("id",)}
    assert config.kafka.options == {"linger.ms": 5, "compression.type": "lz4"}
    assert config.sink is not None
    assert config.sink.schema_name == "mirror"


def test_every_key_outside_the_sections_follows_the_environment(write) -> None:
    other = {"name": "other", "delivery": "idempotent"}
    plain = {name for name, field in Config.model_fields.items() if "Config" not in str(field.annotation)}
    assert plain == other.keys()
    config = load(write(MINIMAL + "delivery: transactional\n"), {f"CDC_{key.upper()}": other[key] for key in plain})
    assert {key: getattr(config, key) for key in plain} == other
    assert "environment variable CDC_DELIVERY: delivery: " in refusal(write(MINIMAL), {"CDC_DELIVERY": "often"})


def test_a_section_that_only_a_variable_makes_is_its_fault(write) -> None:
    words = refusal(write(MINIMAL), {"CDC_SINK__PASSWORD": "hunter2"})
    assert words.startswith("environment variable CDC_SINK__PASSWORD: sink: give one of dsn")
    words = refusal(write(MINIMAL), {"CDC_SNAPSHOT__PASSWORD": "hunter2"})
    assert words.startswith("environment variable CDC_SNAPSHOT__PASSWORD: snapshot: a password is given without a dsn")


def test_empty_and_foreign_variables_count_as_unset(write) -> None:
    environ = {"CDC_SOURCE__DSN": "", "CDC_CONFIG": "x.yaml", "CDC_KAFKA": "localhost:1", "PATH": "/bin"}
    assert load(write(MINIMAL), environ).source.connection() == {"conninfo": "host=db"}


def test_process_environment_is_never_read(write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CDC_SOURCE__DSN", "host=other")
    assert load(write(MINIMAL), {}).source.connection() == {"conninfo": "host=db"}


def test_unknown_key_gets_line_and_suggestion(write) -> None:
    words = refusal(write(MINIMAL + "topics:\n  partition: 3\n"))
    assert 'cdc.yaml, line 7: topics.partition: unknown key; did you mean "partitions"? Allowed here: ' in words
    assert "`cdc config schema`" in words


def test_key_in_the_wrong_section_is_sent_to_the_right_one(write) -> None:
    assert 'slot: unknown key; did you mean "source.slot"?' in refusal(write(MINIMAL + "slot: s\n"))


def test_unknown_key_like_no_other_lists_what_is_allowed(write) -> None:
    assert (
        "zzz: unknown key; Allowed here: name, delivery, source, snapshot, kafka, topics, values, debezium, registry"
        in refusal(write(MINIMAL + "zzz: 1\n"))
    )


def test_unknown_variable_gets_a_suggestion(write) -> None:
    words = refusal(write(MINIMAL), {"CDC_SORUCE__DSN": "host=db"})
    assert "environment variable CDC_SORUCE__DSN" in words
    assert "did you mean CDC_SOURCE__…?" in words
    words = refusal(write(MINIMAL), {"CDC_SOURCE__SLTO": "a"})
    assert 'environment variable CDC_SOURCE__SLTO: source.slto: unknown key; did you mean "slot"?' in words


def test_bad_value_from_the_environment_names_the_variable(write) -> None:
    words = refusal(write(MINIMAL), {"CDC_TOPICS__PARTITIONS": "many"})
    assert "environment variable CDC_TOPICS__PARTITIONS: topics.partitions: should be a valid integer" in words
    assert "found 'many'" in words


def test_broken_json_in_the_environment_is_not_quoted(write) -> None:
    words = refusal(write(MINIMAL), {"CDC_KAFKA__OPTIONS": '{"ssl.key.password": "hunter2"'})
    assert "environment variable CDC_KAFKA__… is not valid JSON: Expecting" in words
    assert "hunter2" not in words


def test_all_errors_are_told_at_once(write) -> None:
    words = refusal(write("name: '-'\nsource: {dsn: host=db, slot: S}\n"))
    assert all(part in words for part in ("name: ", "source.slot: ", "kafka: this key is required"))


def test_missing_file_names_the_ways_out(tmp_path: Path) -> None:
    words = refusal(tmp_path / "none.yaml")
    assert "none.yaml: there is no such file" in words
    assert f"cdc init -c {tmp_path / 'none.yaml'} writes one" in words
    assert "CDC_CONFIG" in words


@pytest.mark.parametrize("tables", ["*.orders", "[*.orders]", "*", "[public.a, *orders]", "*orders", "\n    - *.*"])
def test_a_pattern_that_lacks_its_quotes(write, tables: str) -> None:
    """YAML takes a bare * for an alias."""
    words = refusal(
        write(f"name: shop\nsource:\n  dsn: host=db user=cdc\n  tables: {tables}\nkafka: {{bootstrap: k:1}}\n")
    )
    assert "put a pattern that begins with * in quotes: '*.orders'" in words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: shop\nname: other\n", "line 2: name is given a second time (first on line 1)"),
        ("source:\n  dsn: a\n  dsn: b\n", "line 3: source.dsn is given a second time (first on line 2)"),
        ("name: [hunter2\n", "not valid YAML: "),
        ("source:\n\tdsn: host=db\n", "line 2: not valid YAML: found character '\\t' that cannot start any token"),
        ("source:\n\tdsn: host=db\n", "remedy: indent with spaces"),
        ("name: \x01", "a character that YAML does not allow"),
        ("- name\n", "expected keys such as name, source and kafka at the top, found list"),
        ("a: !!python/object:os.system {}\n", "not valid YAML: could not determine a constructor"),
        ("source:\n  password: 2026-99-99\n", "line 2: not valid YAML: this value looks like a date or a number"),
        ("source:\n  password: 2026-99-99\n", "remedy: put the value in quotes"),
        ("name: 0x_\n", "line 1: not valid YAML: this value looks like a date or a number"),
        ("name: !!int hunter2\n", "line 1: not valid YAML: this value looks like a date or a number"),
        ("name: !!bool hunter2\n", "line 1: not valid YAML: "),
        ("name: !!timestamp hunter2\n", "line 1: not valid YAML: "),
        ("source: &a\n  dsn: *a\n", "not valid YAML: it contains itself"),
    ],
)
def test_not_the_expected_yaml(write, text: str, words: str) -> None:
    said = refusal(write(text))
    assert words in said
    assert "hunter2" not in said


def test_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "cdc.yaml"
    path.write_bytes(b"name: \xff")
    assert "not UTF-8 text (byte 6)" in refusal(path)


def test_empty_file_asks_for_what_is_required(write) -> None:
    assert "name: this key is required" in refusal(write(""))
