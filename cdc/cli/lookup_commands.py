"""``cdc get`` and ``cdc watch``: show one row, or each row that changes, straight from a topic."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from cdc.base.errors import ConfigError, TopicUnavailable
from cdc.bridge.scope.definitions import definitions_of
from cdc.cli.options import ConfigOption, load_config
from cdc.cli.topics_options import BootstrapOption, ClientOption, connection
from cdc.contract.formats.opener import ValueOpener
from cdc.contract.formats.topic_keys import TopicKeys
from cdc.contract.formats.written_key import compared_as_text, equal_keys
from cdc.contract.ports import StoredRecord
from cdc.contract.record import TableSchema
from cdc.ops.jobs.answers import SOMETHING_WRONG
from cdc.topics.history.key import key_columns, record_key
from cdc.topics.lookup.display import change_json, change_line, row_json, row_lines
from cdc.topics.lookup.key_filter import KeyFilter, beginning_with, everything, with_values
from cdc.topics.lookup.record import Shown, of_table, of_topic
from cdc.topics.lookup.scan import follow, newest_of_key

TableArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="TABLE", help="SCHEMA.TABLE; with --topic, the name of a topic.")
]
TopicOption: TypeAlias = Annotated[
    bool, typer.Option("--topic", help="TABLE is the name of any program's topic; KEY is the text of a key in it.")
]
JsonOption: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON: one object per line.")]


_SILENT_S: Final = 1.0
"""How long to wait before a progress bar appears: a bar that flashes up only distracts from the answer."""


class _WantedTopic(NamedTuple):
    """A topic to read, and the definitions of its table if a bridge writes it; ``again`` reads them anew."""

    options: Mapping[str, Any]
    topic: str
    schemas: Sequence[TableSchema]
    again: Callable[[], Sequence[TableSchema]] | None = None


def get(
    table: TableArgument,
    key: Annotated[str, typer.Argument(metavar="KEY", help="""id=17, {"id":17}, or 17 if the key has one column.""")],
    topic: TopicOption = False,
    config: ConfigOption = None,
    bootstrap: BootstrapOption = None,
    client: ClientOption = None,
    json_: JsonOption = False,
) -> None:
    """Show the row of a key as its topic has it now: columns, partition, offset, LSN and commit time.

    It reads the partition of the key to its end. It reads all partitions if another program writes the topic, or if
    equal keys can be written differently, such as 1 and 1.0 in a numeric column without a scale.

    Exit code 0 when there is a row, 1 when there is none, 2 when the topic could not be read.

    Examples:

        cdc get public.orders 17

        cdc get public.stock region=eu,item=4711 --json | jq .row

        cdc get public.stock '{"region":"eu","item":"a,b"}'

        cdc get --topic users alice --bootstrap localhost:9092
    """
    wanted = _look_up(table, config, bootstrap, client, is_topic=topic)
    keys = TopicKeys(wanted.schemas)
    asked = key.encode(errors="surrogateescape") if topic else record_key(key, wanted.schemas, "KEY")
    columns = [] if topic else key_columns(wanted.schemas, asked)
    is_equal = None if topic else equal_keys(asked, columns)
    raw, is_equal = keys.wire(asked), None if is_equal is None else keys.reading(is_equal)
    with _progress() as show:
        records = newest_of_key(wanted.options, wanted.topic, raw, is_ours=not topic, is_equal=is_equal, show=show)
    records = records if is_equal is None else records[-1:]
    read = _reading(wanted, is_topic=topic)
    found = [read(each) for each in records]
    now_us = time.time_ns() // 1000
    for each in found:
        typer.echo(row_json(each, now_us) if json_ else "\n".join(row_lines(each, now_us)))
    if not found:
        told = f"no record of {asked.decode(errors='replace')} in topic {wanted.topic}. {compared_as_text(columns)}"
        Console(stderr=True, highlight=False).print(
            told.rstrip(". "),
            markup=False,
            soft_wrap=True,
        )
    if all(each.row is None for each in found):
        raise typer.Exit(SOMETHING_WRONG)


def watch(
    table: TableArgument,
    key: Annotated[
        str | None,
        typer.Argument(
            metavar="[KEY]",
            help="Only these keys: id=17, or some columns of the key, region=eu; with --topic, the keys' beginning.",
            show_default=False,
        ),
    ] = None,
    topic: TopicOption = False,
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="First print what the topic holds.")] = False,
    config: ConfigOption = None,
    bootstrap: BootstrapOption = None,
    client: ClientOption = None,
    json_: JsonOption = False,
) -> None:
    """Print a line for each row that changes, as soon as it is committed, until Ctrl-C.

    The changes of a partition come in order. Changes of different partitions may come in any order.

    Examples:

        cdc watch public.orders

        cdc watch public.stock region=eu --from-beginning

        cdc watch public.orders --json | jq -c 'select(.op == "delete") | .key'

        cdc watch --topic users a --bootstrap localhost:9092
    """
    wanted = _look_up(table, config, bootstrap, client, is_topic=topic)
    is_wanted: KeyFilter = everything
    if key is not None:
        keys = TopicKeys(wanted.schemas, wanted.again)
        is_wanted = beginning_with(key) if topic else keys.reading(with_values(key, wanted.schemas[-1]))
    read, shown = _reading(wanted, is_topic=topic), change_json if json_ else change_line
    errors = Console(stderr=True, highlight=False)

    def begun() -> None:
        errors.print(f"watching topic {wanted.topic}; Ctrl-C ends it", markup=False, soft_wrap=True)

    def trouble(error: TopicUnavailable) -> None:
        errors.print(f"{error.message}; trying again", markup=False, soft_wrap=True)

    records = follow(wanted.options, wanted.topic, from_beginning=from_beginning, begun=begun, trouble=trouble)
    try:
        for record in records:
            if not is_wanted(record.key or b""):
                continue
            found = read(record)
            if found.row is not None or record.value is None:  # a tombstone follows an envelope that deletes
                typer.echo(shown(found))
    except KeyboardInterrupt:
        return


def _look_up(
    table: str, config: Path | None, bootstrap: str | None, client: list[str] | None, *, is_topic: bool
) -> _WantedTopic:
    """Returns the topic to read.

    Raises:
        ConfigError: the table was never published.
    """
    if is_topic:
        return _WantedTopic(connection(config, bootstrap, client)[0], table, ())
    if bootstrap is not None or client:
        raise ConfigError(
            "--bootstrap does not say which topic a table has", remedy="add --topic and name the topic, or use -c"
        )
    loaded = load_config(config)
    schemas = definitions_of(loaded, table)
    again = partial(definitions_of, loaded, table)
    return _WantedTopic(loaded.kafka.client_options(), schemas[-1].topic, schemas, again)


def _reading(wanted: _WantedTopic, *, is_topic: bool) -> Callable[[StoredRecord], Shown]:
    if is_topic:
        return of_topic
    opener, keys = ValueOpener(wanted.schemas, wanted.again), TopicKeys(wanted.schemas, wanted.again)
    return partial(of_table, opener=opener, keys=keys)


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar after ``_SILENT_S``, on a terminal only; it disappears at the end."""
    console = Console(stderr=True, highlight=False)
    columns = (TextColumn("reading"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    task, began = progress.add_task("", total=None), time.monotonic()

    def show(done: int, total: int) -> None:
        progress.update(task, completed=done, total=total)
        if time.monotonic() - began >= _SILENT_S:
            progress.start()  # has no effect after the first time

    try:
        yield show
    finally:
        progress.stop()
