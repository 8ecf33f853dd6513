"""Reads Debezium's change events, in JSON or Avro, as the JSON objects of the same rows, in the workers' Python.

Nothing here is the bridge's: what a type becomes in each mode is read anew from Debezium's documentation. An event that
cannot be read becomes a text in parentheses, which every job refuses as it refuses damaged JSON. What a job compares or
copies is the row after the change; the row before it goes with compaction, and is not looked at.

https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-data-types
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from binascii import unhexlify
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Final, TypeAlias

from pyspark.sql import Column
from pyspark.sql import functions as fn

from cdc.base.errors import DecodeError
from cdc.contract.debezium_modes import modes_of
from cdc.contract.kinds import Kind, kind_of
from cdc.contract.record import DebeziumModes, TableSchema
from cdc.spark.topic import header_field
from cdc.spark.values.columns import quoted_element
from cdc.spark.values.debezium_avro import AvroEventReader
from cdc.spark.values.objects import split_array, split_object, unquote

DAMAGED: Final = "(a change event that is cut or damaged)"
UNKNOWN_SCHEMA: Final = "(a change event whose schema is not in its definition in the schemas topic)"
UNKNOWN_MODES: Final = "(a change event in modes that this version does not know)"
UNKNOWN_DEFINITION: Final = "(a change event whose definition is not in the schemas topic)"

_NOT_AN_EVENT: Final = (DecodeError, ValueError, LookupError, OverflowError, TypeError, RecursionError)
"""What is raised for an event that is cut or damaged."""

_Read: TypeAlias = Callable[[str], str]
"""Returns the server's text of a value, given its JSON, which is not null."""

_EPOCH: Final = datetime(1970, 1, 1)
_DAY_US: Final = 86_400_000_000
_SPELLED: Final = re.compile(r'(?:"(?:[^"]|"")*"\.)?"?(\w+)"?(?: [a-z ]+)?(?:\((-?\d+)(?:,(-?\d+))?\))?')
_WHOLE: Final = re.compile(r"-?(?:0|[1-9][0-9]*)")
_AMOUNT: Final = re.compile(r"(-?)([0-9]+)\.([0-9]{2})")
_DAY: Final = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})Z")
_CLOCK: Final = re.compile(r"([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,6}))?Z")
_MOMENT: Final = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})T([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,6}))?Z")
_PERIOD: Final = re.compile(
    r"P(-?[0-9]+)Y(-?[0-9]+)M(-?[0-9]+)DT(-?[0-9]+)H(-?[0-9]+)M(-?)([0-9]+)(?:\.([0-9]{1,6}))?S"
)


def event_object(definitions: Iterable[TableSchema], value: str, header: str) -> Column:
    """Returns the objects of events; null for an event that deletes, and for values that are not events.

    Args:
        definitions: all definitions of the events' topic.
        value, header: the names of the columns that hold them.
    """
    reader = _Events(definitions)
    told = (fn.col(value), header_field("schema", fn.col(header)), header_field("envelope", fn.col(header)))
    # Spark calls it with every value, whatever the condition around it says
    return fn.udf(lambda *each: reader.object(*each), "string", useArrow=True)(*told)


class _Events:
    """Reads the events of one topic. Each worker gets its own copy.

    Args:
        definitions: all definitions of the topic.
    """

    def __init__(self, definitions: Iterable[TableSchema]) -> None:
        known = list(definitions)
        self._columns = {each.fingerprint: {column.name: column.sql_type for column in each.columns} for each in known}
        self._written = {
            (each.fingerprint, written.schema_id): written.text for each in known for written in each.written
        }
        self._readers: dict[tuple[str, str], EventReader | str] = {}
        self._in_avro: dict[tuple[str, int], AvroEventReader | str] = {}

    def object(self, value: bytes | None, fingerprint: str | None, modes: str | None) -> str | None:
        """Returns the object of an event; null if there is none. A text in parentheses says why it cannot be read."""
        if value is None or modes is None:
            return None
        known = fingerprint or "", modes
        reader = self._readers.get(known)
        if reader is None:
            reader = self._readers[known] = self._reader(*known)
        if isinstance(reader, str):
            return reader
        if bytes(value[:1]) != b"\0":
            return reader.object(bytes(value))
        written = known[0], int.from_bytes(value[1:5], "big")
        in_avro = self._in_avro.get(written)
        if in_avro is None:
            in_avro = self._in_avro[written] = self._avro_reader(*written)
        return in_avro if isinstance(in_avro, str) else reader.object_of(in_avro, bytes(value))

    def _reader(self, fingerprint: str, modes: str) -> EventReader | str:
        if fingerprint not in self._columns:
            return UNKNOWN_DEFINITION
        try:
            return EventReader(self._columns[fingerprint], modes_of(modes))
        except ValueError:
            return UNKNOWN_MODES

    def _avro_reader(self, fingerprint: str, schema_id: int) -> AvroEventReader | str:
        try:
            return AvroEventReader(self._written[fingerprint, schema_id])
        except (ValueError, LookupError, TypeError):
            return UNKNOWN_SCHEMA


class EventReader:
    """Reads the events of one definition, all written in the same modes.

    Args:
        columns: the types of its columns, by their names and in their order.
        modes: how the values are written.
    """

    def __init__(self, columns: Mapping[str, str], modes: DebeziumModes) -> None:
        self._has_schema = modes.schemas
        self._columns = [
            (name, json.dumps(name, ensure_ascii=False) + ":", _column(sql_type, modes))
            for name, sql_type in columns.items()
        ]

    def object(self, value: bytes) -> str | None:
        """Returns the object of the row after the change; None if there is none, and a text if it cannot be read."""
        try:
            members = split_object(value.decode())
            if self._has_schema:
                members = split_object(members["payload"])
            operation, after = unquote(members["op"]), members["after"].strip()
            return self._told(operation, None if after == "null" else self._cells(after))
        except _NOT_AN_EVENT:
            return DAMAGED

    def object_of(self, reader: AvroEventReader, value: bytes) -> str | None:
        """Does the same for an event in Avro, given the reader of its schema."""
        try:
            return self._told(*reader.read(value))
        except _NOT_AN_EVENT:
            return DAMAGED

    def _told(self, operation: str, after: Sequence[str] | None) -> str | None:
        if operation == "d":
            return None if after is None else DAMAGED
        return self._row(after) if operation in ("c", "u", "r") and after is not None else DAMAGED

    def _cells(self, after: str) -> Sequence[str]:
        cells = split_object(after)
        if len(cells) != len(self._columns):
            raise ValueError("it has other columns")
        return [cells[name].strip() for name, _, _ in self._columns]

    def _row(self, cells: Sequence[str]) -> str:
        """Returns the object of a row.

        Raises:
            ValueError: it is not such a row; so do the others that the caller minds.
        """
        members = []
        for cell, (_, label, read) in zip(cells, self._columns, strict=True):
            members.append(label + (cell if read is None or cell == "null" else read(cell)))
        row = "{" + ",".join(members) + "}"
        row.encode()  # half a character in an escape would end the job later
        return row


def _column(sql_type: str, modes: DebeziumModes) -> Callable[[str], str] | None:
    """Returns what makes the contract's JSON of a column's values; None if they have it already."""
    kind, is_array, _ = kind_of(sql_type)
    if not is_array:
        if kind is Kind.DOCUMENT:
            return _document
        return _in_json(_scalar(sql_type, kind, modes), _cell)
    if kind is Kind.DOCUMENT:
        return _documents
    element = sql_type.removesuffix("[]")
    # Debezium takes elements for bits of any length
    return _in_json(None if element.startswith(("bit", '"bit"')) else _scalar(element, kind, modes), _array)


def _in_json(read: _Read | None, form: Callable[[str, _Read], str]) -> Callable[[str], str] | None:
    return None if read is None else lambda cell: form(cell, read)


def _cell(cell: str, read: _Read) -> str:
    return _quoted(read(cell))


def _array(cell: str, read: _Read) -> str:
    if cell.startswith('"'):  # its type is an array's by name, but its values are not
        return _quoted(unquote(cell))
    elements = (each.strip() for each in split_array(cell))
    return f"[{','.join('null' if each == 'null' else _quoted(read(each)) for each in elements)}]"


def _document(cell: str) -> str:
    """Returns the document in a string. Whether it is one is asked by those that read the object."""
    document = unquote(cell)
    if not document:
        raise ValueError("a document is empty")
    return document


def _documents(cell: str) -> str:
    elements = [None if each.strip() == "null" else _document(each) for each in split_array(cell)]
    if any(each is not None and each.strip() == "null" for each in elements):
        # In a list it would be taken for NULL, so the contract has the server's text
        shown = ("NULL" if each is None else quoted_element(each, ",") for each in elements)
        return _quoted("{" + ",".join(shown) + "}")
    return f"[{','.join('null' if each is None else each for each in elements)}]"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _scalar(sql_type: str, kind: Kind, modes: DebeziumModes) -> _Read | None:
    """Returns what reads a type's values; None for those that are the server's text, or a number or boolean."""
    match = _SPELLED.fullmatch(sql_type)
    if match is None:
        return None
    base, modifier = match[1], None if match[2] is None else int(match[2])
    if sql_type.startswith('"'):
        return _of_extension(base, modes) if '"."' in sql_type else None
    if kind is Kind.BYTES:
        return {"hex": _hex, "base64-url-safe": _url_base64}.get(modes.binary, _base64)
    if kind is Kind.DECIMAL:
        return None if modes.decimal == "string" else _variable if modifier is None else _decimal(int(match[3] or 0))
    if base == "money":
        return _money if modes.decimal == "precise" else _plain_money
    if base == "bit" and modifier is not None:
        return _bit if modifier == 1 else _bits(modifier)
    if base == "interval":
        return _interval
    return _temporal(base, modifier is not None and modifier <= 3, modes.time)


def _of_extension(base: str, modes: DebeziumModes) -> _Read | None:
    if base == "hstore":
        return _hstore if modes.hstore == "map" else lambda cell: _hstore(unquote(cell))
    return _vector if base in ("vector", "halfvec") else None


# Numbers


def _unscaled(text: str) -> int:
    content = b64decode(text, validate=True)
    if not content:
        raise ValueError("a number without digits")
    return int.from_bytes(content, "big", signed=True)


def _point(number: int, scale: int) -> str:
    """Returns the number with so many of its digits after the point, as PostgreSQL prints it."""
    digits = f"{Decimal(abs(number)):f}"  # Python refuses to print more than 4,300 digits of an integer
    if scale < 0 and number:
        digits += "0" * -scale
    if scale > 0:
        digits = digits.rjust(scale + 1, "0")
        digits = f"{digits[:-scale]}.{digits[-scale:]}"
    return ("-" if number < 0 else "") + digits


def _decimal(scale: int) -> _Read:
    return lambda cell: _point(_unscaled(unquote(cell)), scale)


def _variable(cell: str) -> str:
    members = split_object(cell)
    scale = _whole(members["scale"].strip())
    if len(members) != 2 or not 0 <= scale <= 16_383:
        raise ValueError("not a number with its scale")
    return _point(_unscaled(unquote(members["value"])), scale)


def _whole(cell: str) -> int:
    if _WHOLE.fullmatch(cell) is None:
        raise ValueError(f"not a whole number: {cell[:60]!r}")
    return int(cell)


def _money(cell: str) -> str:
    return _in_dollars(_point(_unscaled(unquote(cell)), 2))


def _plain_money(cell: str) -> str:
    return _in_dollars(unquote(cell))


def _in_dollars(amount: str) -> str:
    match = _AMOUNT.fullmatch(amount)
    if match is None:
        raise ValueError(f"not an amount: {amount[:60]!r}")
    sign, whole, cents = match.groups()
    return f"{sign}${int(whole):,}.{cents}"


# Dates and times


def _temporal(base: str, is_coarse: bool, mode: str) -> _Read | None:
    """Returns what reads times of a type; ``is_coarse`` if it has milliseconds at most."""
    match base:
        case "date":
            return _iso_date if mode == "isostring" else _date
        case "time" if mode == "isostring":
            return _iso_time
        case "time":
            return _in_units(_time, mode, is_coarse and mode == "adaptive")
        case "timestamp" if mode == "isostring":
            return _iso_timestamp
        case "timestamp":
            return _in_units(_timestamp, mode, is_coarse and mode.startswith("adaptive"))
        case "timestamptz":
            return lambda cell: _iso_timestamp(cell) + "+00"
    return None


def _in_units(of_micros: Callable[[int], str], mode: str, in_millis: bool) -> _Read:
    if mode == "nanoseconds":
        return lambda cell: of_micros(_micros_of_nanos(_whole(cell)))
    unit = 1_000 if in_millis else 1
    return lambda cell: of_micros(_whole(cell) * unit)


def _micros_of_nanos(nanos: int) -> int:
    if nanos % 1_000:
        raise ValueError("not whole microseconds")
    return nanos // 1_000


def _date(cell: str) -> str:
    return (date(1970, 1, 1) + timedelta(days=_whole(cell))).isoformat()


def _time(micros: int) -> str:
    if not 0 <= micros <= _DAY_US:
        raise ValueError("not a time of day")
    return "24:00:00" if micros == _DAY_US else _timestamp(micros).partition(" ")[2]


def _timestamp(micros: int) -> str:
    text = (_EPOCH + timedelta(microseconds=micros)).isoformat(" ")
    return text.rstrip("0") if "." in text else text


def _iso_date(cell: str) -> str:
    (day,) = _matched(_DAY, cell)
    return date.fromisoformat(day).isoformat()


def _iso_time(cell: str) -> str:
    clock, fraction = _matched(_CLOCK, cell)
    return _checked("1970-01-01", clock, fraction).partition(" ")[2]


def _iso_timestamp(cell: str) -> str:
    return _checked(*_matched(_MOMENT, cell))


def _matched(form: re.Pattern[str], cell: str) -> tuple[str, ...]:
    text = unquote(cell)
    match = form.fullmatch(text)
    if match is None:
        raise ValueError(f"not a date or time: {text[:60]!r}")
    return match.groups("")


def _checked(day: str, clock: str, fraction: str) -> str:
    return _timestamp((datetime.fromisoformat(f"{day} {clock}.{fraction:0<6}") - _EPOCH) // timedelta(microseconds=1))


def _interval(cell: str) -> str:
    """Returns an interval as PostgreSQL prints it with its own IntervalStyle."""
    match = _PERIOD.fullmatch(unquote(cell))
    if match is None:
        raise ValueError("not an interval")
    years, months, days, hours, minutes = (int(match[place]) for place in range(1, 6))
    seconds = int(match[7] + (match[8] or "").ljust(6, "0")) * (-1 if match[6] else 1)
    micros = (hours * 60 + minutes) * 60_000_000 + seconds
    total = years * 12 + months
    year, month = divmod(abs(total), 12)
    if total < 0:
        year, month = -year, -month
    shown, was_negative = "", False
    for number, unit in ((year, "year"), (month, "mon"), (days, "day")):
        if number:
            plus = "+" if was_negative and number > 0 else ""
            shown += f"{' ' if shown else ''}{plus}{number} {unit}{'' if number == 1 else 's'}"
            was_negative = number < 0
    if micros or not shown:
        sign = "-" if micros < 0 else "+" if was_negative else ""
        second, fraction = divmod(abs(micros), 1_000_000)
        clock = f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}.{fraction:06d}".rstrip("0").rstrip(".")
        shown += f"{' ' if shown else ''}{sign}{clock}"
    return shown


# Bytes, bits, and types of extensions


def _base64(cell: str) -> str:
    return "\\x" + b64decode(unquote(cell), validate=True).hex()


def _url_base64(cell: str) -> str:
    return "\\x" + b64decode(unquote(cell), altchars=b"-_", validate=True).hex()


def _hex(cell: str) -> str:
    return "\\x" + unhexlify(unquote(cell)).hex()


def _bit(cell: str) -> str:
    return {"true": "1", "false": "0"}[cell]


def _bits(length: int) -> _Read:
    def read(cell: str) -> str:
        content = b64decode(unquote(cell), validate=True)
        bits = "".join(f"{byte:08b}" for byte in reversed(content)).lstrip("0")
        if len(bits) > length:
            raise ValueError(f"more than {length} bits")
        return bits.rjust(length, "0")

    return read


def _hstore(cell: str) -> str:
    pairs = split_object(cell)
    return ", ".join(
        f"{_in_hstore(key)}=>{'NULL' if value.strip() == 'null' else _in_hstore(unquote(value))}"
        for key, value in pairs.items()
    )


def _in_hstore(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _vector(cell: str) -> str:
    elements = [each.strip() for each in split_array(cell)]
    if not elements or not all(isinstance(float(each), float) for each in elements):
        raise ValueError("not a vector")
    return f"[{','.join(elements)}]"
