"""The questions of ``cdc init``: for what the options leave open, and for answers that a server refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import typer

from cdc.base.config import Config
from cdc.base.errors import (
    CdcError,
    ConfigError,
    ReplicaUnavailable,
    SourceRefused,
    SourceUnavailable,
    TopicRefused,
    TopicUnavailable,
)
from cdc.ops.setup.answers import Answers, client_options, config_of, name_from
from cdc.ops.setup.conninfo import without_password
from cdc.ops.setup.seen import ServersSeen, look

_ABOUT: Final[Mapping[type[CdcError], str]] = {
    SourceUnavailable: "source",
    SourceRefused: "source",
    TopicUnavailable: "kafka",
    TopicRefused: "kafka",
    ReplicaUnavailable: "replica",
}
_ASKED: Final[Mapping[str, str]] = {
    "source": "Source, as a libpq connection string or URL (host=db dbname=shop user=cdc)",
    "kafka": "Kafka (host:port, several separated by commas)",
    "replica": "Replica, as a connection string; empty for none",
}
_PASSWORDS: Final[Mapping[str, str]] = {
    "source": "CDC_SOURCE__PASSWORD",
    "kafka": "CDC_KAFKA__PASSWORD",
    "replica": "CDC_SINK__PASSWORD",
}


def answered(
    *, name: str, source: str, kafka: str, replica: str, client: list[str], tables: list[str], exclude: list[str]
) -> Answers:
    """Build the answers from options and prompts, and take the passwords out of the connection strings.

    Raises:
        ConfigError: an answer is invalid, or is missing because nobody was asked.
    """
    if lacking := [option for option, value in (("--source", source), ("--kafka", kafka)) if not value]:
        raise ConfigError(
            f"cdc init needs {' and '.join(lacking)}: it asks only on a terminal, and not with --yes",
            remedy=f"add {' '.join(f'{option} …' for option in lacking)}",
        )
    dsn, password = without_password(source, "--source")
    to, other = without_password(replica, "--replica") if replica else ("", "")
    pairs = {_PASSWORDS["source"]: password, _PASSWORDS["replica"]: other}
    return Answers(
        name=name or name_from(dsn),
        source=dsn,
        kafka=kafka,
        options=client_options(client),
        replica=to,
        tables=tuple(tables),
        exclude=tuple(exclude),
        passwords={variable: value for variable, value in pairs.items() if value},
    )


def completed(given: Mapping[str, str]) -> dict[str, str]:
    """Ask for the options that are missing, and return all of them."""
    source = given["source"] or _ask_for("source")
    return {
        "source": source,
        "name": given["name"] or _ask_name(source),
        "kafka": given["kafka"] or _ask_for("kafka"),
        "replica": given["replica"] or _ask_for("replica"),
    }


def _ask_for(part: str, default: str = "") -> str:
    """Ask for one server."""
    if part == "replica":
        return str(typer.prompt(_ASKED[part], default=default, show_default=bool(default))).strip()
    return str(typer.prompt(_ASKED[part], default=default or None)).strip()


def _ask_name(source: str) -> str:
    """Ask for the bridge's name; the default follows the database's name."""
    dsn, _ = without_password(source, "--source")
    return str(typer.prompt("Name, the first part of all topic names (cannot change later)", default=name_from(dsn)))


def look_and_ask(answers: Answers, environ: Mapping[str, str]) -> tuple[Answers, Config, ServersSeen]:
    """Look at the servers, and ask again about each that does not answer, until all do; then ask for the tables.

    Raises:
        ConfigError: an answer is not allowed.
    """
    while True:
        config = config_of(answers, environ)
        try:
            seen = look(config, answers.admin, everything=not answers.tables)
            break
        except CdcError as error:
            part = next((part for kind, part in _ABOUT.items() if isinstance(error, kind)), None)
            if part is None:
                raise
            typer.echo(f"{error}\n")
            answers = _again(answers, part, error)
    assert seen.source is not None
    if answers.tables:
        return answers, config, seen
    proposed = ", ".join(seen.source.patterns)
    chosen = str(typer.prompt("Tables to capture (schema.table, * for any characters)", default=proposed))
    if chosen.strip() == proposed:
        return answers, config, seen
    tables = tuple(each.strip() for each in chosen.split(",") if each.strip())
    return look_and_ask(replace(answers, tables=tables), environ)


def _again(answers: Answers, part: str, error: CdcError) -> Answers:
    """Ask for the password of a server that refused, or for another answer."""
    if "password" in f"{error}" and part in _PASSWORDS:
        # Allow an empty answer: servers ask for a password even if the role is wrong or does not exist yet.
        asked = f"Password for {part} (not written to the file; leave empty to change the answer instead)"
        if said := typer.prompt(asked, hide_input=True, default="", show_default=False):
            return replace(answers, passwords={**answers.passwords, _PASSWORDS[part]: said})
    text = _ask_for(part, {"source": answers.source, "kafka": answers.kafka, "replica": answers.replica}[part])
    if part == "kafka":
        options = typer.prompt(
            "Options of its client (NAME=VALUE, several separated by spaces)", default="", show_default=False
        )
        return replace(answers, kafka=text, options={**answers.options, **client_options(options.split())})
    dsn, password = without_password(text, f"--{part}") if text else ("", "")
    passwords = {**answers.passwords, **({_PASSWORDS[part]: password} if password else {})}
    if part == "source":
        admin = answers.admin
        if not error.retryable and not admin:
            admin = str(typer.prompt("Look as another user (user=postgres; empty for none)", default="")).strip()
        return replace(answers, source=dsn, passwords=passwords, admin=admin)
    return replace(answers, replica=dsn, passwords=passwords)
