"""Variables that begin like ours and that nothing reads: a key misspelt is refused, anything else is told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cdc.base.config import load
from cdc.base.config.unread import READ_ELSEWHERE, warnings
from cdc.base.errors import ConfigError
from cdc.cli.init_questions import answered
from cdc.cli.options import load_config
from cdc.ops.setup.answers import config_of
from tests.architecture.tree import ROOT

MINIMAL = "name: shop\nsource: {dsn: host=db}\nkafka: {bootstrap: 'kafka:9092'}\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "cdc.yaml"
    path.write_text(MINIMAL)
    return path


@pytest.mark.parametrize(
    ("variable", "right"),
    [
        ("CDC_TOPICS_PARTITIONS", "CDC_TOPICS__PARTITIONS"),
        ("cdc_topics_partitions", "CDC_TOPICS__PARTITIONS"),
        ("CDC_SOURCE_PASSWORD", "CDC_SOURCE__PASSWORD"),
        ("CDC_HTTP_BRIDGE_PORT", "CDC_HTTP__BRIDGE_PORT"),
        ("CDC_SINK_SCHEMA", "CDC_SINK__SCHEMA"),
        ("CDC_KAFKA_OPTIONS", "CDC_KAFKA__OPTIONS"),
        ("CDC_SERVE_PORT", "CDC_SERVE__PORT"),
    ],
)
def test_one_underscore_instead_of_two_was_passed_over(path: Path, variable: str, right: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(path, {variable: "3"})
    assert f"environment variable {variable}: cdc does not read it" in str(caught.value)
    assert str(caught.value.remedy) == f"rename it to {right}, or unset it"


def test_init_refuses_it_too() -> None:
    answers = answered(
        source="host=db dbname=shop user=cdc",
        kafka="kafka:9092",
        name="shop",
        replica="",
        client=[],
        tables=[],
        exclude=[],
    )
    with pytest.raises(ConfigError, match="CDC_SOURCE__PASSWORD"):
        config_of(answers, {"CDC_SOURCE_PASSWORD": "hunter2"})


def test_beside_the_right_one_it_only_gets_a_warning(path: Path) -> None:
    environ = {"CDC_TOPICS_PARTITIONS": "3", "CDC_TOPICS__PARTITIONS": "5"}
    assert load(path, environ).topics.partitions == 5
    assert [*warnings(environ)] == [
        "environment variable CDC_TOPICS_PARTITIONS: cdc reads no variable of this name; "
        "did you mean CDC_TOPICS__PARTITIONS?"
    ]


def test_what_is_like_no_key_is_told_and_stops_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for variable in ("CDC_TOPICS_PARTITION", "CDC_LOGLEVEL", "CDC_OF_SOMEBODY"):
        monkeypatch.setenv(variable, "hunter2")
    load_config(path)
    said = capsys.readouterr().err
    assert "environment variable CDC_TOPICS_PARTITION: cdc reads no variable of this name; did you mean CDC_T" in said
    assert "CDC_LOGLEVEL: cdc reads no variable of this name; did you mean CDC_LOG_LEVEL?" in said
    assert "CDC_OF_SOMEBODY: cdc reads no variable of this name\n" in said
    assert "hunter2" not in said


def test_what_others_set_beside_us_is_left_alone(path: Path) -> None:
    """Kubernetes gives every container the addresses of the services beside it: here of ``cdc-serve``."""
    links = {
        "CDC_SERVE_SERVICE_HOST": "10.0.0.1",
        "CDC_SERVE_SERVICE_PORT": "80",
        "CDC_SERVE_SERVICE_PORT_HTTP": "80",
        "CDC_SERVE_PORT": "tcp://10.0.0.1:80",
        "CDC_SERVE_PORT_80_TCP": "tcp://10.0.0.1:80",
        "CDC_SERVE_PORT_80_TCP_ADDR": "10.0.0.1",
    }
    ours = dict.fromkeys([*READ_ELSEWHERE, "CDC_TEST_BROWSER", "CDC_TESTS_BROKER"], "1")
    empty = {"CDC_TOPICS_PARTITIONS": ""}
    environ = {**links, **ours, **empty}
    assert load(path, environ).topics.partitions == 4
    assert [*warnings(environ)] == []


def test_every_variable_that_the_code_names_is_known() -> None:
    names = {
        name
        for each in (ROOT / "cdc").rglob("*.py")
        for name in re.findall(r"\bCDC_[A-Z]+(?:_[A-Z]+)*\b(?!_)", each.read_text())
    }
    assert names - {"CDC_TOPICS_PARTITIONS", "CDC_TEST", "CDC_NAME"} == set(READ_ELSEWHERE)
