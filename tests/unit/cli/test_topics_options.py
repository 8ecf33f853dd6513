"""Which cluster a command of ``cdc topics`` asks, and what it makes of options that do not fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.base.errors import ConfigError
from cdc.cli.topics_options import connection, duration_ms


def test_any_cluster_is_asked_without_a_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options, config = connection(None, "kafka:9093", ["security.protocol=SSL", "sasl.password=a=b"])
    assert options == {"bootstrap.servers": "kafka:9093", "security.protocol": "SSL", "sasl.password": "a=b"}
    assert config is None


def test_the_cluster_of_a_configuration_is_asked_as_it_says(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text("{name: shop, source: {dsn: host=db dbname=shop user=cdc}, kafka: {bootstrap: kafka:9092}}")
    options, config = connection(file, None, None)
    assert config is not None
    assert (config.name, options["bootstrap.servers"]) == ("shop", "kafka:9092")


@pytest.mark.parametrize(
    ("bootstrap", "client", "words"),
    [
        (None, ["security.protocol=SSL"], "-X needs --bootstrap; write the setting under kafka.options in the file"),
        ("kafka:9092", ["security.protocol"], "-X security.protocol has no value; write -X security.protocol=VALUE"),
    ],
)
def test_an_option_that_does_not_fit_is_named(bootstrap: str | None, client: list[str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        connection(None, bootstrap, client)
    assert f"{caught.value.message}; {caught.value.remedy}" == words


@pytest.mark.parametrize(
    ("text", "milliseconds"), [("250ms", 250), ("90s", 90_000), ("15 min", 900_000), ("1.5h", 5_400_000)]
)
def test_a_duration(text: str, milliseconds: int) -> None:
    assert duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "90", "h", "-1s", "1h30m"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ConfigError, match="invalid duration"):
        duration_ms(text)
