"""``cdc quarantine``: lists the rows that stand aside, shows one, has them published again, or gives one up.

The bridge puts rows aside that cannot be carried, and the sink those that the replica refuses.
"""

from __future__ import annotations

import json
import shlex
import time
from base64 import b64encode
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from cdc.base.config import Config
from cdc.base.errors import ConfigError, EncodeError
from cdc.bridge.asking.repair import repair_keys
from cdc.bridge.scope.definitions import definitions_of
from cdc.cli.options import ConfigOption, load_config
from cdc.contract.formats.topic_keys import TopicKeys
from cdc.contract.naming import quarantine_topic, schemas_topic
from cdc.contract.quarantine import KeptCell, QuarantineEntry
from cdc.contract.record import RepairKey
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.replay.definitions import read_definitions, read_entries
from cdc.topics.history.key import record_key

if TYPE_CHECKING:
    from cdc.sink.replica import RefusedRecord

quarantine_app = typer.Typer(
    help="List the rows that cannot be carried, or that the replica refuses; have them published again.",
    no_args_is_help=True,
)

TableArgument = Annotated[
    str, typer.Argument(metavar="SCHEMA.TABLE", help="The table as cdc quarantine list shows it; case matters.")
]
KeyArgument = Annotated[
    str, typer.Argument(metavar="KEY", help="""id=17, {"id":17}, or 17 if the key has one column.""")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, with the cells in base64.")]

_TIMEOUT_S: Final = 120.0
_SHOWN_CHARS: Final = 200


class Refusal(NamedTuple):
    """A row that the replica refuses, and its table: ``namespace.table`` in the source."""

    table: str
    record: RefusedRecord


@quarantine_app.command("list")
def list_entries(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """List what is in quarantine: table, key, place, since when, and why.

    The place is an LSN of the source for a row that cannot be carried, and a record for one that the replica refuses.

    Examples:

        cdc quarantine list -c shop.yaml

        cdc quarantine list --json | jq -r '.[].reason'
    """
    loaded = load_config(config)
    found, refusals = _entries(loaded), _refusals(loaded)
    if as_json:
        documents = [*map(_document, found), *map(_refusal_document, refusals)]
        typer.echo(json.dumps(documents, indent=2, ensure_ascii=False))
        return
    for each in found:
        typer.echo(f"{each.table}  {_key(each)}  {each.position.lsn}  {_since(each.ts)}  {each.reason}")
    for table, record in refusals:
        place = f"partition {record.partition} offset {record.offset}"
        key = record.key.decode(errors="replace")
        typer.echo(f"{table}  {key}  {place}  {_since(record.since)}  the replica refuses it: {record.reason}")
    if not found and not refusals:
        typer.echo("nothing is in quarantine")


@quarantine_app.command("show")
def show(table: TableArgument, key: KeyArgument, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show a row that cannot be carried, with what its columns held. What may not leave is absent, or masked.

    Of a row that the replica refuses, show the record and the reason: the topic has the row itself.

    Examples:

        cdc quarantine show public.orders 17
    """
    loaded = load_config(config)
    wanted, entry = _entry(loaded, table, key)
    if entry is not None:
        document, lines = _document(entry), _entry_lines(entry)
    else:
        refusal = _refusal(loaded, table, wanted)
        document, lines = _refusal_document(refusal), _refusal_lines(refusal)
    typer.echo(json.dumps(document, indent=2, ensure_ascii=False) if as_json else "\n".join(lines))


@quarantine_app.command("retry")
def retry(
    table: TableArgument,
    key: Annotated[str | None, typer.Argument(metavar="KEY", help="The row; all of the table without it.")] = None,
    config: ConfigOption = None,
) -> None:
    """Have the bridge read rows in quarantine again, and publish those that can be carried now.

    The sink then tries again those that the replica refused.

    Exit code 3 when some of them still cannot.

    Examples:

        cdc quarantine retry public.orders

        cdc quarantine retry public.orders 17
    """
    loaded = load_config(config)
    schemas = definitions_of(loaded, table)
    entries, refusals = _of_table(loaded, table), [each.record for each in _refusals(loaded) if each.table == table]
    if key is not None:
        wanted, keys = record_key(key, schemas, "KEY"), TopicKeys(schemas)
        entries = [each for each in entries if keys.json(each.key) == wanted]
        refusals = [each for each in refusals if each.key == wanted]
        if not entries and not refusals:
            raise _not_there(table, wanted)
    wire = TopicKeys(schemas).wire
    _ask(loaded, table, [*(each.key for each in entries), *(wire(each.key) for each in refusals)], gives_up=False)
    if refusals:
        typer.echo(
            f"{len(refusals)} rows that the replica refuses were published again: the sink tries them once more, and "
            "cdc quarantine list shows those that it still refuses"
        )
    places = {(each.topic, each.key) for each in entries}
    left = [each for each in _of_table(loaded, table) if (each.topic, each.key) in places]
    if entries or not refusals:
        typer.echo(f"{len(entries) - len(left)} of {len(entries)} rows left the quarantine")
    if left:
        raise EncodeError(
            f"{len(left)} of the rows still cannot be carried: {'; '.join(each.reason for each in left[:10])}",
            remedy="correct them in the source, or raise the limit that they exceed and restart the bridge",
        )


@quarantine_app.command("drop")
def drop(table: TableArgument, key: KeyArgument, config: ConfigOption = None) -> None:
    """Give a row up that cannot be carried: its entry goes, and the topic goes on as if the row were deleted.

    Topic and source differ from then on, until the row changes again. cdc reconcile finds that.

    Examples:

        cdc quarantine drop public.orders 17
    """
    loaded = load_config(config)
    wanted, entry = _entry(loaded, table, key)
    if entry is None:
        raise _not_there(table, wanted)
    _ask(loaded, table, [entry.key], gives_up=True)
    typer.echo(
        f"{_key(entry)} is not in quarantine any more, and its topic holds no row for it. If {table} still has "
        "the row, topic and source differ until it changes"
    )


def _ask(config: Config, table: str, wanted: Iterable[bytes], *, gives_up: bool) -> None:
    keys = [RepairKey(each) for each in dict.fromkeys(wanted)]
    repair_keys(config, table, keys, timeout_s=_TIMEOUT_S, tell=lambda _: None, gives_up=gives_up)


def _entries(config: Config) -> list[QuarantineEntry]:
    return read_entries(BrokerAdmin(config.kafka.client_options()), quarantine_topic(config.name))


def _of_table(config: Config, table: str) -> list[QuarantineEntry]:
    return [each for each in _entries(config) if each.table == table]


def _entry(config: Config, table: str, text: str) -> tuple[bytes, QuarantineEntry | None]:
    """Returns the key that a person means, in JSON, and its entry; None if the bridge did not put it aside.

    Raises:
        ConfigError: the text is not a key of the table.
    """
    schemas = definitions_of(config, table)
    wanted, keys = record_key(text, schemas, "KEY"), TopicKeys(schemas)
    return wanted, next((each for each in _of_table(config, table) if keys.json(each.key) == wanted), None)


def _refusal(config: Config, table: str, key: bytes) -> Refusal:
    """Returns what the replica refuses of a key.

    Raises:
        ConfigError: it takes the row, or has no quarantine.
    """
    for each in _refusals(config):
        if (each.table, each.record.key) == (table, key):
            return each
    raise _not_there(table, key)


def _not_there(table: str, key: bytes) -> ConfigError:
    return ConfigError(f"{table} {key.decode()} is not in quarantine", remedy="cdc quarantine list shows what is in it")


def _refusals(config: Config) -> list[Refusal]:
    """Returns the rows that the replica refuses and goes on without; none if no replica has a quarantine."""
    if config.sink is None:
        return []
    # Imported here, because cdc --help must not wait for SQLAlchemy
    from cdc.sink.dialects import open_replica

    if not (found := open_replica(config, application_name="cdc quarantine").refused()):
        return []
    known = read_definitions(BrokerAdmin(config.kafka.client_options()), schemas_topic(config.name))
    tables = {each.topic: each.qualified_name for each in known}
    return [Refusal(tables.get(each.topic, each.topic), each) for each in found]


def _key(entry: QuarantineEntry) -> str:
    try:
        return entry.key.decode()
    except UnicodeDecodeError:
        return b64encode(entry.key).decode()


def _since(moment: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", datetime.fromtimestamp(moment / 1_000_000, UTC).timetuple())


def _entry_lines(entry: QuarantineEntry) -> list[str]:
    return [
        f"{entry.table} {_key(entry)}, in quarantine since {_since(entry.ts)}",
        f"change {entry.position.seq} of the transaction at {entry.position.lsn}",
        entry.reason,
        *(f"  {each.name} ({each.type_name}): {_cell(each)}" for each in entry.cells),
    ]


def _refusal_lines(refusal: Refusal) -> list[str]:
    table, record = refusal
    key = record.key.decode(errors="replace")
    return [
        f"{table} {key}, refused by the replica since {_since(record.since)}",
        f"partition {record.partition} of {record.topic}, offset {record.offset}",
        record.reason,
        f"the topic has the row: cdc get {shlex.quote(table)} {shlex.quote(key)}",
    ]


def _cell(cell: KeptCell) -> str:
    if cell.size is None:
        return "NULL"
    text = cell.content.decode(errors="backslashreplace")
    shown = text if text.isprintable() else repr(text)[1:-1]
    if len(shown) > _SHOWN_CHARS or cell.is_cut:
        return f"{shown[:_SHOWN_CHARS]}… ({cell.size:,} bytes)"
    return shown


def _document(entry: QuarantineEntry) -> dict[str, Any]:
    return {
        "table": entry.table,
        "topic": entry.topic,
        "key": _key(entry),
        "lsn": str(entry.position.lsn),
        "seq": entry.position.seq,
        "since": _since(entry.ts),
        "refused_by": "bridge",
        "reason": entry.reason,
        "columns": [
            {
                "name": each.name,
                "type": each.type_name,
                "size": each.size,
                "text64": None if each.size is None else b64encode(each.content).decode(),
            }
            for each in entry.cells
        ],
    }


def _refusal_document(refusal: Refusal) -> dict[str, Any]:
    table, record = refusal
    return {
        "table": table,
        "topic": record.topic,
        "key": record.key.decode(errors="replace"),
        "partition": record.partition,
        "offset": record.offset,
        "since": _since(record.since),
        "refused_by": "replica",
        "reason": record.reason,
    }
