"""The questions of ``cdc init``: what the options leave open, and what a server did not like."""

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
    "kafka": "Kafka (host:port, several with commas)",
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
    """Answers out of options and prompts: passwords are taken out of the connection strings.

    Raises:
        ConfigError: one of them is missing, where nobody was asked, or wrong.
    """
    if lacking := [option for option, value in (("--source", source), ("--kafka", kafka)) if not value]:
        raise ConfigError(
            f"cdc init needs {' and '.join(lacking)}: it asks only at a terminal, and not with --yes",
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
    """The options, and answers for those that are missing."""
    source = given["source"] or _ask_for("source")
    return {
        "source": source,
        "name": given["name"] or _ask_name(source),
        "kafka": given["kafka"] or _ask_for("kafka"),
        "replica": given["replica"] or _ask_for("replica"),
    }


def _ask_for(part: str, default: str = "") -> str:
    """One answer."""
    if part == "replica":
        return str(typer.prompt(_ASKED[part], default=default, show_default=bool(default))).strip()
    return str(typer.prompt(_ASKED[part], default=default or None)).strip()


def _ask_name(source: str) -> str:
    """The bridge's name; it follows the database's unless somebody wants another."""
    dsn, _ = without_password(source, "--source")
    return str(typer.prompt("Name, with which all topics begin (it cannot change later)", default=name_from(dsn)))


def look_and_ask(answers: Answers, environ: Mapping[str, str]) -> tuple[Answers, Config, ServersSeen]:
    """Look at the servers until all three answer, asking again for the one that does not; then ask for the tables.

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
    """Another answer for the server that did not like the first one; or its password."""
    if "password" in f"{error}" and part in _PASSWORDS:
        # Who has none may have named the wrong role, or one that is not there yet: servers do not tell these apart.
        asked = f"Password for {part} (not written into the file; empty to answer otherwise)"
        if said := typer.prompt(asked, hide_input=True, default="", show_default=False):
            return replace(answers, passwords={**answers.passwords, _PASSWORDS[part]: said})
    text = _ask_for(part, {"source": answers.source, "kafka": answers.kafka, "replica": answers.replica}[part])
    if part == "kafka":
        options = typer.prompt(
            "Options of its client (NAME=VALUE, several with spaces)", default="", show_default=False
        )
        return replace(answers, kafka=text, options={**answers.options, **client_options(options.split())})
    dsn, password = without_password(text, f"--{part}") if text else ("", "")
    passwords = {**answers.passwords, **({_PASSWORDS[part]: password} if password else {})}
    if part == "source":
        admin = answers.admin
        if not error.retryable and not admin:
            admin = str(typer.prompt("Look as somebody else (user=postgres; empty for nobody)", default="")).strip()
        return replace(answers, source=dsn, passwords=passwords, admin=admin)
    return replace(answers, replica=dsn, passwords=passwords)
