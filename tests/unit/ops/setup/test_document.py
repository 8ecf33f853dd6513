"""The file that ``cdc init`` writes: it loads, and holds what was answered, whatever the names are."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.base.config import load
from cdc.ops.setup.answers import Answers, config_of, name_from
from cdc.ops.setup.document import render
from cdc.ops.setup.kafka_side import SeenKafka
from cdc.ops.setup.seen import ServersSeen, printable
from cdc.ops.setup.source_side import patterns_for
from cdc.ops.setup.steps import steps

AWKWARD = ("public.*", "it's.a: b", 'x."""y"""', "- z.#1", "ü.ß\n!", "no.yes", "1.2", "*.*")


def answers(**more: object) -> Answers:
    return Answers("shop", "host=db user=cdc application_name='a: b # c'", "k:9092", **more)  # type: ignore[arg-type]  # keywords, checked when it runs


def test_awkward_names_come_back_as_they_were(tmp_path: Path) -> None:
    given = answers(
        tables=AWKWARD, exclude=AWKWARD[:3], options={"client.id": "yes", "a: b": "# c"}, replica="host=r user='x: y'"
    )
    path = tmp_path / "shop.yaml"
    path.write_text(render(given, config_of(given, {}), ServersSeen()))
    loaded = load(path, {})
    assert loaded == config_of(given, {})
    assert loaded.source.tables == AWKWARD
    assert loaded.kafka.options == {"client.id": "yes", "a: b": "# c"}


@pytest.mark.parametrize(("brokers", "copies", "in_sync"), [(1, 1, 1), (2, 2, 1), (3, 3, 2), (9, 3, 2)])
def test_copies_fit_the_cluster(tmp_path: Path, brokers: int, copies: int, in_sync: int) -> None:
    given = answers()
    path = tmp_path / "shop.yaml"
    path.write_text(render(given, config_of(given, {}), ServersSeen(kafka=SeenKafka(brokers, "4.1", 0, (), False))))
    topics = load(path, {}).topics
    assert (topics.replication_factor, topics.min_insync_replicas) == (copies, in_sync)


def test_a_dot_in_a_schema_does_not_divide_its_pattern() -> None:
    assert patterns_for(["a.b", "public"]) == ('"a.b".*', "public.*")


def test_nothing_leaves_its_comment() -> None:
    assert printable("a\nb\x1b[1m\u2028") == "a\\nb\\x1b[1m\\u2028"


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("dbname=shop user=x", "shop"),
        ("user=x", "x"),
        ("dbname='my shöp'", "my_sh_p"),
        (f"dbname={'x' * 60}", "x" * 48),
    ],
)
def test_the_name_is_the_databases_as_far_as_it_can_be(source: str, name: str) -> None:
    assert name_from(source) == name


def test_a_path_with_a_space_is_quoted(tmp_path: Path) -> None:
    given = answers()
    assert (
        list(steps(Path("my shop.yaml"), given, config_of(given, {}), ServersSeen()))[-1]
        == "cdc check -c 'my shop.yaml'"
    )


def test_only_secrets_of_the_environment_count_beside_the_answers() -> None:
    environ = {"CDC_NAME": "other", "CDC_TOPICS__PARTITIONS": "9", "CDC_SOURCE__PASSWORD": "hunter2"}
    config = config_of(answers(), environ)
    assert (config.name, config.topics.partitions) == ("shop", 4)
    assert config.source.connection()["password"] == "hunter2"
