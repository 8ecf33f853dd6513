"""``cdc init``: looks at the servers, writes a configuration, and prints the commands that come next."""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer

from cdc.base.config import Config, load
from cdc.base.daemon.logs import hide
from cdc.base.errors import ConfigError
from cdc.base.interrupts import EXIT_CODE
from cdc.cli.init_questions import answered, completed, look_and_ask
from cdc.cli.options import DEFAULT_PATH, ConfigOption
from cdc.ops.setup.answers import Answers, config_of, secrets
from cdc.ops.setup.document import render
from cdc.ops.setup.seen import ServersSeen, look, tell
from cdc.ops.setup.steps import steps

_TWICE: Final = "; may be repeated."

SourceOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--source",
        metavar="DSN",
        envvar="CDC_SOURCE__DSN",
        help="The source: a libpq connection string or URL, with the role that cdc will connect as.",
    ),
]
KafkaOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--kafka",
        metavar="HOST:PORT",
        envvar="CDC_KAFKA__BOOTSTRAP",
        help="The Kafka cluster; separate several brokers with commas.",
    ),
]
ReplicaOption: TypeAlias = Annotated[
    str, typer.Option("--replica", metavar="DSN", envvar="CDC_SINK__DSN", help="The replica; none by default.")
]
NameOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--name",
        metavar="NAME",
        envvar="CDC_NAME",
        help="The first part of every topic name; the database's name by default.",
    ),
]
TablesOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--tables",
        metavar="PATTERN",
        help=f"Tables to capture, as schema.table with *; by default, all that can be captured{_TWICE}",
    ),
]
ExcludeOption: TypeAlias = Annotated[
    list[str] | None, typer.Option("--exclude", metavar="PATTERN", help=f"Tables to leave out{_TWICE}")
]
ClientOption: TypeAlias = Annotated[
    list[str] | None, typer.Option("-X", metavar="NAME=VALUE", help=f"A librdkafka setting{_TWICE}")
]
AdminOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--admin",
        metavar="KEYWORDS",
        help="A user who may grant rights, as libpq keywords such as user=postgres. cdc init looks as this user if its "
        "own role cannot connect yet; the password comes from PGPASSWORD or ~/.pgpass.",
    ),
]


def init(
    config: ConfigOption = None,
    source: SourceOption = "",
    kafka: KafkaOption = "",
    replica: ReplicaOption = "",
    name: NameOption = "",
    tables: TablesOption = None,
    exclude: ExcludeOption = None,
    client: ClientOption = None,
    admin: AdminOption = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing, and take what is found.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")] = False,
    offline: Annotated[
        bool, typer.Option("--offline", help="Do not look at the servers; write what the options say.")
    ] = False,
) -> None:
    """Look at source, Kafka and replica, write a configuration with comments, and print the next commands.

    It asks for what the options leave open. It changes nothing on the servers, and writes no password into the file.

    Examples:

        cdc init

        cdc init -c shop.yaml --source 'host=db dbname=shop user=cdc' --admin user=postgres --kafka kafka:9092 --yes
    """
    path = config or DEFAULT_PATH
    asks = sys.stdin.isatty() and not yes
    try:
        overwrite = _may_replace(path, asks=asks, told=overwrite)
        servers = {"source": source, "kafka": kafka, "replica": replica, "name": name}
        given = answered(
            **(completed(servers) if asks else servers),
            client=client or [],
            tables=tables or [],
            exclude=exclude or [],
        )
        answers, seen = _look(replace(given, admin=admin), asks=asks, offline=offline)
    except typer.Abort:
        raise typer.Exit(EXIT_CODE) from None
    final = _final(answers, seen)
    _write(path, render(answers, final, seen), overwrite=overwrite)
    _report(path, answers, final, seen)


def _may_replace(path: Path, *, asks: bool, told: bool) -> bool:
    """Whether an existing file may be replaced.

    Raises:
        ConfigError: the file exists, and may not be replaced.
    """
    if path.is_dir():
        raise ConfigError(f"{path} is a folder", remedy=f"name a file with -c, such as {path / DEFAULT_PATH}")
    if told or not path.exists():
        return told
    if asks and typer.confirm(f"{path} already exists. Replace it?"):
        return True
    raise _there(path)


def _there(path: Path) -> ConfigError:
    return ConfigError(f"{path} already exists", remedy="name another file with -c, or add --overwrite")


def _look(answers: Answers, *, asks: bool, offline: bool) -> tuple[Answers, ServersSeen]:
    hide(tuple(answers.passwords.values()))
    config = config_of(answers, os.environ)
    hide(config.secrets())
    if offline:
        return answers, ServersSeen()
    if asks:
        answers, _, seen = look_and_ask(answers, os.environ)
        return answers, seen
    return answers, look(config, answers.admin, everything=not answers.tables)


def _final(answers: Answers, seen: ServersSeen) -> Config:
    """Returns the configuration that the file will hold."""
    if seen.source is None:
        return config_of(answers, os.environ)
    tables = replace(answers, tables=seen.source.patterns)
    return config_of(tables, os.environ, publication_mode=seen.source.mode)


def _write(path: Path, text: str, *, overwrite: bool) -> None:
    """Write the file whole or not at all, and replace an existing file only if ``overwrite`` says so.

    Raises:
        ConfigError: the file cannot be written, or somebody created it meanwhile.
    """
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".new")
    except OSError as error:
        raise _unwritable(path, error) from error
    draft = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        load(draft, secrets(os.environ))  # make sure that the file is valid before it appears under its name
        draft.chmod(0o644)
        if overwrite:
            draft.replace(path)
        else:
            _appear(draft, path)
    except FileExistsError:
        raise _there(path) from None
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        draft.unlink(missing_ok=True)


def _appear(draft: Path, path: Path) -> None:
    """Give the draft its name, unless a file of that name has appeared meanwhile."""
    try:
        os.link(draft, path)  # unlike a rename, this never replaces a file
    except FileExistsError:
        raise
    except OSError:
        # Some file systems have no hard links, such as FAT, or shared folders of virtual machines.
        with path.open("xb") as file:
            file.write(draft.read_bytes())


def _unwritable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"{path} cannot be written: {error.strerror}", remedy="name another file with -c")


def _report(path: Path, answers: Answers, config: Config, seen: ServersSeen) -> None:
    lines = [*tell(config, seen), "", f"{path} is written. Next steps:", ""]
    typer.echo("\n".join([*lines, *steps(path, answers, config, seen)]))
