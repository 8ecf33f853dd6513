"""``cdc get`` and ``cdc watch``: a row, and each row that changes, straight from a topic."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from cdc.base.errors import ConfigError, TopicUnavailable
from cdc.bridge.scope.definitions import definitions_of
from cdc.cli.options import ConfigOption, load_config
from cdc.cli.topics_options import BootstrapOption, ClientOption, connection
from cdc.contract.formats.written_key import compared_as_text, equal_keys
from cdc.contract.record import TableSchema
from cdc.ops.jobs.answers import SOMETHING_WRONG
from cdc.topics.history.key import key_columns, record_key
from cdc.topics.lookup.display import change_json, change_line, row_json, row_lines
from cdc.topics.lookup.key_filter import KeyFilter, beginning_with, everything, with_values
from cdc.topics.lookup.record import of_table, of_topic
from cdc.topics.lookup.scan import follow, newest_of_key

TableArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="TABLE", help="SCHEMA.TABLE; with --topic, the name of a topic.")
]
TopicOption: TypeAlias = Annotated[
    bool, typer.Option("--topic", help="TABLE is a topic, of whichever program; KEY is the text of its keys.")
]
JsonOption: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON: one object a line.")]


_SILENT_S: Final = 1.0
"""A bar that comes and goes at once is in the way of the answer."""


class _WantedTopic(NamedTuple):
    """A topic to read; of a table of ours, with its definitions."""

    options: Mapping[str, Any]
    topic: str
    schemas: Sequence[TableSchema]


def get(
    table: TableArgument,
    key: Annotated[str, typer.Argument(metavar="KEY", help="""id=17, {"id":17}, or 17 where the key is one column.""")],
    topic: TopicOption = False,
    config: ConfigOption = None,
    bootstrap: BootstrapOption = None,
    client: ClientOption = None,
    json_: JsonOption = False,
) -> None:
    """Show the row of a key as its topic has it now: columns, partition, offset, LSN, and when it was committed.

    It reads the partition of the key to its end. It reads all partitions of topics of other programs, and where an
    equal key may be written differently: 1 and 1.0 of a numeric without a scale.

    Exit code 0 when there is a row, 1 when there is none, 2 when there is no answer.

    Examples:

        cdc get public.orders 17

        cdc get public.stock region=eu,item=4711 --json | jq .row

        cdc get public.stock '{"region":"eu","item":"a,b"}'

        cdc get --topic users alice --bootstrap localhost:9092
    """
    wanted = _look_up(table, config, bootstrap, client, is_topic=topic)
    raw = key.encode(errors="surrogateescape") if topic else record_key(key, wanted.schemas, "KEY")
    columns = [] if topic else key_columns(wanted.schemas, raw)
    is_equal = None if topic else equal_keys(raw, columns)
    with _progress() as show:
        records = newest_of_key(wanted.options, wanted.topic, raw, is_ours=not topic, is_equal=is_equal, show=show)
    records = records if is_equal is None else records[-1:]
    found = [of_topic(each) if topic else of_table(each) for each in records]
    now_us = time.time_ns() // 1000
    for each in found:
        typer.echo(row_json(each, now_us) if json_ else "\n".join(row_lines(each, now_us)))
    if not found:
        Console(stderr=True, highlight=False).print(
            f"no record of {raw.decode(errors='replace')} in topic {wanted.topic}. {compared_as_text(columns)}".rstrip(
                ". "
            ),
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
            help="Only these: id=17, or some columns of the key, region=eu; with --topic, what keys begin with.",
            show_default=False,
        ),
    ] = None,
    topic: TopicOption = False,
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="First what the topic holds.")] = False,
    config: ConfigOption = None,
    bootstrap: BootstrapOption = None,
    client: ClientOption = None,
    json_: JsonOption = False,
) -> None:
    """Print a line for each row that changes, as soon as it is committed, until Ctrl-C.

    Each partition is in order; two partitions are not in order with each other.

    Examples:

        cdc watch public.orders

        cdc watch public.stock region=eu --from-beginning

        cdc watch public.orders --json | jq -c 'select(.op == "delete") | .key'

        cdc watch --topic users a --bootstrap localhost:9092
    """
    wanted = _look_up(table, config, bootstrap, client, is_topic=topic)
    is_wanted: KeyFilter = everything
    if key is not None:
        is_wanted = beginning_with(key) if topic else with_values(key, wanted.schemas[-1])
    read, shown = of_topic if topic else of_table, change_json if json_ else change_line
    errors = Console(stderr=True, highlight=False)

    def begun() -> None:
        errors.print(f"watching topic {wanted.topic}; Ctrl-C ends it", markup=False, soft_wrap=True)

    def trouble(error: TopicUnavailable) -> None:
        errors.print(f"{error.message}; trying again", markup=False, soft_wrap=True)

    records = follow(wanted.options, wanted.topic, from_beginning=from_beginning, begun=begun, trouble=trouble)
    try:
        for record in records:
            if is_wanted(record.key or b""):
                typer.echo(shown(read(record)))
    except KeyboardInterrupt:
        return


def _look_up(
    table: str, config: Path | None, bootstrap: str | None, client: list[str] | None, *, is_topic: bool
) -> _WantedTopic:
    """Raises ConfigError when nothing was ever published of the table."""
    if is_topic:
        return _WantedTopic(connection(config, bootstrap, client)[0], table, ())
    if bootstrap is not None or client:
        raise ConfigError(
            "--bootstrap does not tell what a table's topic is", remedy="add --topic and name the topic, or use -c"
        )
    loaded = load_config(config)
    schemas = definitions_of(loaded, table)
    return _WantedTopic(loaded.kafka.client_options(), schemas[-1].topic, schemas)


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """A bar from ``_SILENT_S`` on; nothing is left of it, and nothing shown where nobody looks."""
    console = Console(stderr=True, highlight=False)
    columns = (TextColumn("reading"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    task, began = progress.add_task("", total=None), time.monotonic()

    def show(done: int, total: int) -> None:
        progress.update(task, completed=done, total=total)
        if time.monotonic() - began >= _SILENT_S:
            progress.start()  # which does nothing the second time

    try:
        yield show
    finally:
        progress.stop()
