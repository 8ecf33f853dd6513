"""A person's answers, checked by building the configuration from them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from psycopg.conninfo import conninfo_to_dict

from cdc.base.config import Config
from cdc.base.config.environment import origins
from cdc.base.config.load import checked
from cdc.base.config.masking import is_secret_key
from cdc.base.config.unread import refuse_misspelt
from cdc.base.errors import ConfigError

_OPTIONS: Final[Mapping[str, str]] = {
    "name": "--name",
    "source": "--source",
    "source.tables": "--tables",
    "source.exclude": "--exclude",
    "kafka": "--kafka",
    "kafka.options": "-X",
    "sink": "--replica",
}
_NAME_CHARS: Final = 48


@dataclass(frozen=True, slots=True)
class Answers:
    """A person's answers: where to read from, and where to write to.

    Attributes:
        source: a connection string without a password.
        kafka: ``host:port``, several separated by commas.
        options: librdkafka settings.
        replica: a connection string without a password; empty for no replica.
        tables: patterns; empty to capture whatever is there.
        admin: libpq keywords of a user who may grant rights; empty if none was named.
        passwords: passwords by variable, such as ``CDC_SOURCE__PASSWORD``; used to look at the servers, never stored.
    """

    name: str
    source: str
    kafka: str
    options: Mapping[str, str] = field(default_factory=dict)
    replica: str = ""
    tables: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    admin: str = ""
    passwords: Mapping[str, str] = field(default_factory=dict, repr=False)


def config_of(answers: Answers, environ: Mapping[str, str], **source: object) -> Config:
    """Returns the configuration that these answers describe.

    Args:
        answers: the person's answers.
        environ: this process's environment; only its secrets are used.
        source: more entries for the section ``source``.

    Raises:
        ConfigError: an answer is not allowed.
    """
    content: dict[str, Any] = {
        "name": answers.name,
        "source": {"dsn": answers.source, "exclude": answers.exclude, **source},
        "kafka": {"bootstrap": answers.kafka, "options": dict(answers.options)},
    }
    if answers.tables:
        content["source"]["tables"] = answers.tables
    if answers.replica:
        content["sink"] = {"dsn": answers.replica}
    refuse_misspelt(environ)
    return checked(content, {**secrets(environ), **answers.passwords}, _where, Path())


def secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables with content that no file should hold: passwords, and options of the Kafka client."""
    parts = {path: path.rpartition(".")[2] for path in origins(environ)}
    wanted = {path for path, key in parts.items() if key in ("password", "password_file") or path == "kafka.options"}
    return {variable: environ[variable] for path, variable in origins(environ).items() if path in wanted}


def client_options(pairs: list[str]) -> dict[str, str]:
    """Parse ``NAME=VALUE`` options for the Kafka client.

    Raises:
        ConfigError: an option has no value, or is a secret, which the file must not hold.
    """
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise ConfigError(f"-X {name} has no value", remedy=f"write -X {name}=VALUE")
        if name == "sasl.password":
            raise ConfigError(
                "-X sasl.password: a password does not belong in the file",
                remedy="set the variable CDC_KAFKA__PASSWORD instead, for cdc init and for bridge and sink",
            )
        if is_secret_key(name):
            raise ConfigError(
                f"-X {name}: a secret does not belong in the file",
                remedy=f"""set it in the environment, now and later: CDC_KAFKA__OPTIONS='{{"{name}": "…"}}'""",
            )
        found[name] = value
    return found


def name_from(source: str) -> str:
    """Suggest a name for the bridge: the name of its database, with ``_`` for characters that are not allowed."""
    keywords = conninfo_to_dict(source)
    database = str(keywords.get("dbname") or keywords.get("user") or "")
    return re.sub(r"[^A-Za-z0-9_]", "_", database)[:_NAME_CHARS] or "cdc"


def _where(keys: tuple[str, ...]) -> str:
    for length in range(len(keys), 0, -1):
        if option := _OPTIONS.get(".".join(keys[:length])):
            return option
    return "cdc init"
