"""What a person answered, checked as the configuration that it will be."""

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
    """Whom to read from, and where to.

    Attributes:
        source: connection string without a password.
        kafka: ``host:port``, several with commas.
        options: librdkafka settings.
        replica: connection string without a password; empty for none.
        tables: patterns; empty for whatever there is.
        admin: libpq keywords of somebody who may give rights; empty when nobody was named.
        passwords: by variable, such as ``CDC_SOURCE__PASSWORD``; they are used to look, and go nowhere.
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
    """The configuration that these answers make.

    Args:
        answers: of the person.
        environ: of this process; only its secrets count beside the answers.
        source: more entries of that section.

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
    """The variables that hold what no file should: passwords, and options of the Kafka client."""
    parts = {path: path.rpartition(".")[2] for path in origins(environ)}
    wanted = {path for path, key in parts.items() if key in ("password", "password_file") or path == "kafka.options"}
    return {variable: environ[variable] for path, variable in origins(environ).items() if path in wanted}


def client_options(pairs: list[str]) -> dict[str, str]:
    """``NAME=VALUE`` for the Kafka client.

    Raises:
        ConfigError: no value, or a value that the file must not hold.
    """
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise ConfigError(f"-X {name} has no value", remedy=f"write -X {name}=VALUE")
        if name == "sasl.password":
            raise ConfigError(
                "-X sasl.password: a password does not belong into the file",
                remedy="put it into the variable CDC_KAFKA__PASSWORD, for cdc init and for bridge and sink",
            )
        if is_secret_key(name):
            raise ConfigError(
                f"-X {name}: a secret does not belong into the file",
                remedy=f"""put it into the environment, now and later: CDC_KAFKA__OPTIONS='{{"{name}": "…"}}'""",
            )
        found[name] = value
    return found


def name_from(source: str) -> str:
    """A name for the bridge: that of its database, as far as it may be one."""
    keywords = conninfo_to_dict(source)
    database = str(keywords.get("dbname") or keywords.get("user") or "")
    return re.sub(r"[^A-Za-z0-9_]", "_", database)[:_NAME_CHARS] or "cdc"


def _where(keys: tuple[str, ...]) -> str:
    for length in range(len(keys), 0, -1):
        if option := _OPTIONS.get(".".join(keys[:length])):
            return option
    return "cdc init"
