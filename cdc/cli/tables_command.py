"""``cdc tables``: lists which tables are captured and why others are not; adds or removes a table."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, TypeAlias

import psycopg
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from cdc.base.config import Config
from cdc.base.config.edit import CannotEdit, add_entry, remove_entry
from cdc.base.errors import CdcError, ConfigError
from cdc.base.table_names import qualified
from cdc.bridge.scope.definitions import named
from cdc.bridge.scope.topics import state_topic
from cdc.bridge.source.catalog import find_others, find_tables, table_info
from cdc.bridge.source.connect import LOOK_S, connect
from cdc.bridge.source.publication import inspect_publication
from cdc.bridge.source.table import TableInfo, why_unusable
from cdc.cli.options import DEFAULT_PATH, ConfigOption, load_again, load_config
from cdc.contract.patterns import in_scope

tables_app = typer.Typer(help="Show which tables are captured; add or remove one.", no_args_is_help=True)

TableArgument = Annotated[
    str, typer.Argument(metavar="SCHEMA.TABLE", help="The table as cdc tables list shows it; case matters.")
]

Step: TypeAlias = tuple[str, Callable[[str, Sequence[str], str], str]]
"""A list in the section ``source``, and the function that adds or removes the table's name in it."""

_APPLICATION = "cdc tables"


@dataclass(frozen=True, slots=True)
class Line:
    """A table, or another relation, that matches the patterns.

    Attributes:
        published: whether the publication contains it now.
        refusal: why it is not captured; empty if it is.
    """

    table: str
    topic: str
    published: bool
    key: tuple[str, ...]
    refusal: str


@tables_app.command("list")
def list_tables(
    config: ConfigOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON array.")] = False,
) -> None:
    """List the tables that match source.tables: topic, key, and why a table is not captured.

    Examples:

        cdc tables list -c shop.yaml

        cdc tables list --json | jq -r '.[] | select(.refusal != "") | .table'
    """
    loaded = load_config(config)
    with connect(loaded.source.connection(), application_name=_APPLICATION, lock_timeout_s=LOOK_S) as conn:
        found = lines(conn, loaded)
    console = Console(highlight=False)
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(each) for each in found], indent=2, ensure_ascii=False))
    elif console.is_terminal:
        console.print(_as_table(found))
    else:
        for each in found:
            state = "published" if each.published else "not published"
            text = f"not captured: {each.refusal}" if each.refusal else f"{state}, key ({', '.join(each.key)})"
            typer.echo(f"{each.table}  {each.topic or '-'}  {text}")


@tables_app.command("add")
def add(table: TableArgument, config: ConfigOption = None) -> None:
    """Add a table to the configuration file, which keeps its comments. Then send SIGHUP to the running bridge.

    The bridge publishes the table's rows (depending on snapshot.mode) and its changes.

    Examples:

        cdc tables add public.invoices -c shop.yaml && kill -HUP "$(pgrep -f 'cdc run -c shop.yaml')"
    """
    loaded, table = load_config(config), qualified(*named(table))
    with connect(loaded.source.connection(), application_name=_APPLICATION, lock_timeout_s=LOOK_S) as conn:
        _check_usable(conn, loaded, table)
    source = loaded.source
    if in_scope(*named(table), source.tables, source.exclude):
        typer.echo(f"{table} is already captured")
        return
    if excluding := [each for each in source.exclude if each != table and in_scope(*named(table), [each], ())]:
        raise ConfigError(
            f"source.exclude excludes {table}: {', '.join(excluding)}",
            remedy="narrow the patterns in source.exclude so that they no longer match this table",
        )
    steps: list[Step] = []
    if table in source.exclude:
        steps.append(("exclude", remove_entry))
    if not in_scope(*named(table), source.tables, ()):
        steps.append(("tables", partial(add_entry, default=source.tables)))
    _edit(
        config or DEFAULT_PATH,
        table,
        steps,
        lambda new: in_scope(*named(table), new.source.tables, new.source.exclude),
    )


@tables_app.command("remove")
def remove(table: TableArgument, config: ConfigOption = None) -> None:
    """Remove a table from the configuration file, which keeps its comments. Then send SIGHUP to the running bridge.

    The topic stays as it is. When nobody reads it any more, delete it with Kafka's own tools.

    Examples:

        cdc tables remove public.invoices -c shop.yaml && kill -HUP "$(pgrep -f 'cdc run -c shop.yaml')"
    """
    loaded, table = load_config(config), qualified(*named(table))
    source = loaded.source
    if not in_scope(*named(table), source.tables, source.exclude):
        typer.echo(f"{table} is not captured")
        return
    steps: list[Step] = [("tables", remove_entry)] if table in source.tables and len(source.tables) > 1 else []
    rest = [pattern for pattern in source.tables if pattern != table]
    if not steps or in_scope(*named(table), rest, source.exclude):
        steps.append(("exclude", add_entry))
    path = config or DEFAULT_PATH
    _edit(path, table, steps, lambda new: not in_scope(*named(table), new.source.tables, new.source.exclude))
    topic = state_topic(loaded, *named(table))
    typer.echo(f"Its topic stays. When nobody reads it any more: kafka-topics.sh --delete --topic {topic}")


def lines(conn: psycopg.Connection[object], config: Config) -> list[Line]:
    """Returns everything that matches the patterns, tables first."""
    source = config.source
    state = inspect_publication(conn, source.publication)
    published = state.tables if state is not None else frozenset()

    def line(info: TableInfo) -> Line:
        refusal = why_unusable(info)
        try:
            topic = state_topic(config, info.namespace, info.name)
        except CdcError as error:
            return Line(info.qualified_name, "", info.qualified_name in published, info.key, error.message)
        reason = "" if refusal is None else refusal.reason
        return Line(info.qualified_name, topic, info.qualified_name in published, info.key, reason)

    found = [line(each) for each in find_tables(conn, source.tables, source.exclude, source.keys)]
    for other in find_others(conn, source.tables, source.exclude):
        if other.partition_root:
            reason = f"a partition; its rows are in the topic of {other.partition_root}"
        elif other.unreadable:
            reason = other.what
        else:
            reason = f"{other.what}: logical replication does not carry it"
        found.append(Line(other.qualified_name, "", False, (), reason))
    return found


def _check_usable(conn: psycopg.Connection[object], config: Config, table: str) -> None:
    """Raise an error, worded as the bridge's, if the table cannot be captured."""
    info = table_info(conn, *named(table), config.source.keys)
    others = find_others(conn, [table], ())
    if others:
        root = others[0].partition_root
        raise ConfigError(
            f"{table} is {others[0].what}, which cannot be captured by itself",
            remedy=f"cdc tables add {shlex.quote(root)}"
            if root
            else "name a table: cdc tables list shows those that are captured",
        )
    if info is None:
        raise ConfigError(f"there is no table {table}", remedy="write schema.table as in the catalog; case matters")
    if refusal := why_unusable(info):
        raise ConfigError(refusal.reason, remedy=refusal.remedy)


def _edit(
    path: Path,
    table: str,
    steps: Sequence[Step],
    is_right: Callable[[Config], bool],
) -> None:
    """Change lists of the section ``source`` in the file, or raise an error that says what to change by hand."""
    before = path.read_text(encoding="utf-8")
    try:
        text = before
        for option, step in steps:
            text = step(text, ("source", option), table)
    except CannotEdit:
        raise ConfigError(
            f"this command cannot edit {path}: a list is missing there, or is written in an unusual way",
            remedy=f"edit it yourself: {_by_hand(table, steps)}",
        ) from None
    try:
        _replace(path, text)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror}",
            remedy=f"run the command as a user who may write the file, or edit it: {_by_hand(table, steps)}",
        ) from error
    try:
        right = is_right(load_again(path))
    except CdcError:
        right = False
    if not right:
        _replace(path, before)
        raise ConfigError(
            f"changing {path} would have no effect: an environment variable may override its lists",
            remedy="unset the variable; `cdc config show` names those that are set",
        )
    typer.echo(f"{path} is changed. Tell the running bridge with SIGHUP: kill -HUP <pid of cdc run>")


def _replace(path: Path, text: str) -> None:
    """Replace the file's text atomically: neither a daemon that reads it nor a full disk leaves half of it.

    Raises:
        OSError: the file, or a new file beside it, cannot be written; the file is unchanged.
    """
    path = path.resolve()  # replace the file that a link points to, not the link
    path.open("r+b").close()  # a rename would also replace a file that this user may not write
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".new")
    draft = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        shutil.copymode(path, draft)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _by_hand(table: str, steps: Sequence[Step]) -> str:
    what = (f"source.{name}: {'remove' if step is remove_entry else 'add'} {table}" for name, step in steps)
    return f"{'; '.join(what)}; then send the bridge SIGHUP"


def _as_table(found: Sequence[Line]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("Table", "Topic", "Published", "Key", "Not captured because"):
        table.add_column(title, overflow="fold")
    for each in found:
        table.add_row(
            each.table, each.topic or "-", "yes" if each.published else "no", ", ".join(each.key), each.refusal
        )
    return table
