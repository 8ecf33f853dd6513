"""Passwords: where they may stand, how they reach the clients, and that they are never shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic import SecretStr, ValidationError

from cdc.base.config import Config, KafkaConfig, SinkConfig, SourceConfig, load
from cdc.base.config.masking import dsn_secrets, is_secret_key, mask_dsn
from cdc.base.errors import ConfigError

SASL: dict[str, str | int | float | bool] = {"security.protocol": "SASL_SSL", "sasl.username": "cdc"}


def test_password_joins_the_connection_as_a_keyword() -> None:
    source = SourceConfig(dsn=SecretStr("host=db"), password=SecretStr("it's"))
    assert source.connection() == {"conninfo": "host=db", "password": "it's"}
    assert conninfo_to_dict(make_conninfo(**source.connection()))["password"] == "it's"


def test_connection_without_password() -> None:
    assert SinkConfig(dsn=SecretStr("host=db")).connection() == {"conninfo": "host=db"}


def test_client_options() -> None:
    kafka = KafkaConfig(
        bootstrap="k:9092", options=SASL | {"socket.nagle.disable": True, "linger.ms": 0}, password=SecretStr("pw")
    )
    assert kafka.client_options() == SASL | {
        "socket.nagle.disable": "true",
        "linger.ms": 0,
        "bootstrap.servers": "k:9092",
        "sasl.password": "pw",
    }


@pytest.mark.parametrize("content", ["pw\n", "pw", "pw\r\n", "pw\nsecond line\n"])
def test_password_file_is_read_beside_the_configuration(tmp_path: Path, content: str) -> None:
    (tmp_path / "secret").write_text(content)
    path = tmp_path / "cdc.yaml"
    path.write_text("name: a\nsource: {dsn: host=db, password_file: secret}\nkafka: {bootstrap: k}\n")
    assert load(path, {}).source.connection()["password"] == "pw"


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "No such file"), (b"\nsecond", "the first line of"), (b"\xff", "is not UTF-8 text")],
)
def test_unreadable_password_file(tmp_path: Path, content: bytes | None, words: str) -> None:
    if content is not None:
        (tmp_path / "secret").write_bytes(content)
    path = tmp_path / "cdc.yaml"
    path.write_text("name: a\nsource: {dsn: host=db, password_file: secret}\nkafka: {bootstrap: k}\n")
    with pytest.raises(ConfigError, match=words):
        load(path, {})


@pytest.mark.parametrize(
    ("given", "places"),
    [
        ({"dsn": "host=db", "password": "hunter2", "password_file": "f"}, "password and in password_file"),
        ({"dsn": "host=db password=hunter2", "password": "hunter2"}, "password and in dsn"),
        ({"dsn": "postgresql://u:hunter2@db", "password_file": "f"}, "password_file and in dsn"),
    ],
)
def test_a_password_has_one_place(given: dict[str, str], places: str) -> None:
    with pytest.raises(ValidationError, match=f"the password is given in {places}") as caught:
        SourceConfig.model_validate(given)
    assert "hunter2" not in str(caught.value)


def test_password_of_the_environment_replaces_the_file_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "cdc.yaml"
    path.write_text("name: a\nsource: {dsn: host=db, password_file: gone}\nkafka: {bootstrap: k}\n")
    assert load(path, {"CDC_SOURCE__PASSWORD": "pw"}).source.connection()["password"] == "pw"


@pytest.mark.parametrize("options", [{}, {"security.protocol": "SASL_SSL"}, {"sasl.username": "cdc"}])
def test_kafka_password_needs_its_companions(options: dict[str, str | int | float | bool]) -> None:
    with pytest.raises(ValidationError, match="it would not be used"):
        KafkaConfig(bootstrap="k", options=options, password=SecretStr("pw"))


@pytest.mark.parametrize(
    "text",
    [
        "name: a\nsource: {dsn: [hunter2]}\nkafka: {bootstrap: k}\n",
        "name: a\nsource: {dsn: host=db, password: [hunter2]}\nkafka: {bootstrap: k}\n",
        "name: a\nsource: postgresql://u:hunter2@db\nkafka: {bootstrap: k}\n",
        "name: postgresql://u:hunter2@db\nsource: {dsn: host=db}\nkafka: {bootstrap: k}\n",
        "name: a\nsource: {dsn: host=db}\nkafka: {bootstrap: k, options: {ssl.key.password: [hunter2]}}\n",
        "name: a\nsource: {dsn: host=db, slot: S, password: hunter2}\nkafka: {bootstrap: k}\n",
    ],
)
def test_no_error_shows_a_secret(tmp_path: Path, text: str) -> None:
    path = tmp_path / "cdc.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(path, {})
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("dsn", "shown", "secrets"),
    [
        ("host=db user=cdc", "host=db user=cdc", ()),
        ("host=db password=pw user=x", "host=db password=******** user=x", ("pw",)),
        (r"password='a\' b' host=db", "password=******** host=db", (r"'a\' b'", "a' b")),
        (r"password=a\ b host=db", "password=******** host=db", (r"a\ b", "a b")),
        ("host=db passfile=/etc/pw", "host=db passfile=/etc/pw", ()),
        ("postgresql://cdc@db/shop", "postgresql://cdc@db/shop", ()),
        ("postgresql://cdc:pw@db:5432/shop", "postgresql://cdc:********@db:5432/shop", ("pw",)),
        ("postgresql://cdc:p%40w@db", "postgresql://cdc:********@db", ("p%40w", "p@w")),
        ("postgresql://cdc:p@w@db", "postgresql://cdc:********@db", ("p@w",)),
        ("postgresql://db/shop?password=pw&x=1", "postgresql://db/shop?password=********&x=1", ("pw",)),
        ("mysql+pymysql://u:pw@db/x", "mysql+pymysql://u:********@db/x", ("pw",)),
    ],
)
def test_dsn_is_shown_without_its_password(dsn: str, shown: str, secrets: tuple[str, ...]) -> None:
    assert mask_dsn(dsn) == shown
    assert dsn_secrets(dsn) == secrets


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("dsn", True),
        ("password", True),
        ("password_file", False),
        ("salt", True),
        ("salt_file", False),
        ("ssl.key.password", True),
        ("ssl.key.pem", True),
        ("ssl.key.location", False),
        ("ssl.ca.pem", False),
        ("sasl.oauthbearer.client.secret", True),
        ("sasl.oauthbearer.token.endpoint.url", False),
        ("sasl.username", False),
    ],
)
def test_which_options_are_secret(name: str, secret: bool) -> None:
    assert is_secret_key(name) is secret


def test_secrets_lists_every_secret_in_use_longest_first() -> None:
    config = Config(
        name="a",
        source=SourceConfig(dsn=SecretStr("host=db password=first")),
        kafka=KafkaConfig(bootstrap="k", options=SASL | {"ssl.key.password": "third"}, password=SecretStr("fourth")),
        sink=SinkConfig(dsn=SecretStr("host=db"), password=SecretStr("second-secret")),
    )
    assert config.secrets()[0] == "second-secret"
    assert set(config.secrets()) == {"first", "third", "fourth", "second-secret"}
    assert not any(secret in repr(config) for secret in config.secrets())
