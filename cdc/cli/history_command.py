"""``cdc history``: shows when a row changed, in which transaction, and what it was before."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Annotated, Final, TypeAlias

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from cdc.base.config import Config
from cdc.base.errors import ConfigError, TopicUnavailable
from cdc.base.lsn import LSN
from cdc.bridge.scope.definitions import definitions_of, named
from cdc.cli.options import ConfigOption, load_config
from cdc.contract.formats.topic_keys import TopicKeys
from cdc.contract.naming import history_topic, progress_topic
from cdc.contract.patterns import in_scope
from cdc.contract.progress import stream_key
from cdc.contract.record import TableSchema
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.replay.topic_state import read_known
from cdc.topics.history.display import as_lines, as_table, entry_json, reach_line, row_json, row_lines
from cdc.topics.history.key import key_columns, record_key
from cdc.topics.history.scan import KeyScan
from cdc.topics.history.trail import Moment, Trail, parse_moment, row_at, with_changes, within
from cdc.topics.lookup.scan import key_in_topic

_MOMENT: Final = "ISO time or LSN"

KeyArgument: TypeAlias = Annotated[
    str | None,
    typer.Argument(metavar="KEY", help="""id=17, {"id":17}, or 17 if the key has one column.""", show_default=False),
]
KeyOption: TypeAlias = Annotated[
    str | None, typer.Option("--key", metavar="KEY", help="KEY as an option.", show_default=False)
]


def history(
    table: Annotated[
        str, typer.Argument(metavar="SCHEMA.TABLE", help="The table as cdc tables list shows it; case matters.")
    ],
    key: KeyArgument = None,
    config: ConfigOption = None,
    since: Annotated[str | None, typer.Option(metavar="WHEN", help=f"Leave out older changes: {_MOMENT}.")] = None,
    until: Annotated[str | None, typer.Option(metavar="WHEN", help=f"Leave out newer changes: {_MOMENT}.")] = None,
    as_of: Annotated[
        str | None,
        typer.Option(
            "--as-of",
            metavar="WHEN",
            help="Print the row as it was then. An LSN is exact: the changes before it count, as in a replica's cut. "
            "A time is as exact as the server's clock; without a time zone, it is UTC.",
        ),
    ] = None,
    json_: Annotated[
        bool, typer.Option("--json", help="Print JSON: one object per line, with values as recorded.")
    ] = False,
    key_option: KeyOption = None,
) -> None:
    """Show each change of one row: time, kind, LSN, transaction and columns, old → new. Needs topics.history.

    It reads one partition of the history topic, and redacts no values. Exit code 3 when the history does not reach back
    to --as-of, 4 when a server does not answer.

    Examples:

        cdc history public.orders 17

        cdc history public.stock '{"region":"eu","item":"a,b"}' --since 2026-03-01 --json | jq .new

        cdc history public.orders 17 --as-of '2026-03-29T12:00:00+02:00'

        cdc history public.orders 17 --as-of 0/1925728
    """
    text = _one_key(table, key, key_option)
    if as_of is not None and (since is not None or until is not None):
        raise ConfigError("--as-of is one moment; --since and --until are for the list", remedy="leave one out")
    moments = [None if when is None else parse_moment(when) for when in (since, until, as_of)]
    loaded = load_config(config)
    topic, past, schemas = _look_up(loaded, table)
    wanted = record_key(text, schemas, "KEY" if key_option is None else "--key")
    published = _published(loaded, moments[2])
    errors, keys = Console(stderr=True, highlight=False), TopicKeys(schemas)
    with _progress(errors) as show:
        wanted = key_in_topic(loaded.kafka.client_options(), topic, wanted, key_columns(schemas, wanted), keys, show)
        scan = KeyScan(BrokerAdmin(loaded.kafka.client_options()), topic, past, wanted, show)
        wanted = keys.json(wanted)
        trail = scan.trail(schemas)
        then = None if moments[2] is None else row_at(trail, moments[2], lambda: scan.current(trail, schemas))
    notes = [f"{table} {wanted.decode()}, partition {scan.partition} of {past}; {published}", reach_line(trail)]
    errors.print("\n".join(notes), markup=False, soft_wrap=True)
    if then is None:
        _print(trail, moments[0], moments[1], wanted, scan.partition, as_json=json_)
    elif json_:
        typer.echo(row_json(then, wanted, str(as_of)))
    else:
        typer.echo("\n".join(row_lines(then)))


def _one_key(table: str, key: str | None, option: str | None) -> str:
    """Returns the key, which may be given as an argument or as an option.

    Raises:
        ConfigError: there is no key, or there are two.
    """
    given = [each for each in (key, option) if each is not None]
    if len(given) != 1:
        raise ConfigError(
            "cdc history needs one KEY" + (", but has two" if given else ""),
            remedy=f"cdc history {shlex.quote(table)} KEY, such as id=17",
        )
    return given[0]


def _look_up(config: Config, table: str) -> tuple[str, str, list[TableSchema]]:
    """Returns the state topic, the history topic and the definitions of a table.

    Raises:
        ConfigError: the table has no history, or was never published.
    """
    if not in_scope(*named(table), config.topics.history, ()):
        raise ConfigError(
            f"no history is kept for table {table}: topics.history does not name it",
            remedy=f"add {table} to topics.history and restart the bridge, which keeps changes from then on",
        )
    schemas = definitions_of(config, table)
    topic = schemas[-1].topic
    return topic, history_topic(topic), schemas


def _published(config: Config, moment: Moment | None) -> str:
    """Returns how far the topics are published now; called before they are read.

    Raises:
        ConfigError: the moment is in the future.
        TopicUnavailable: the topics are not published up to the moment yet.
    """
    if isinstance(moment, datetime) and moment > datetime.now(UTC):
        raise ConfigError(
            f"--as-of {moment.isoformat()} is in the future",
            remedy="name a past moment, or leave --as-of out for the newest rows",
        )
    admin = BrokerAdmin(config.kafka.client_options())
    known = read_known(admin, progress_topic(config.name), stream_key(config.source.slot), fenced=False)
    until = None if known.progress is None else known.progress.lsn
    if isinstance(moment, LSN) and (until is None or moment > until):
        raise TopicUnavailable(
            f"the topics are published up to {until}, not yet to {moment}",
            remedy="wait until the bridge has reached it: cdc status",
        )
    return f"published up to {until}"


def _print(
    trail: Trail, since: Moment | None, until: Moment | None, key: bytes, partition: int, *, as_json: bool
) -> None:
    found = [each for each in with_changes(trail.entries) if within(each[0].record, since, until)]
    console = Console(highlight=False)
    if as_json:
        for entry, _ in found:
            typer.echo(entry_json(entry, key, partition))
    elif not found:
        typer.echo("no change of this key" + (" in that time" if trail.entries else " is on record"))
    elif console.is_terminal:
        console.print(as_table(found))
    else:
        typer.echo("\n".join(as_lines(found)))


@contextmanager
def _progress(console: Console) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar while reading, on a terminal only; it disappears at the end."""
    columns = (TextColumn("reading"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
