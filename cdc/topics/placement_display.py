"""Formats what ``cdc topics partitioner`` found: a table and lines for people, a document for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich import box
from rich.table import Table

from cdc.base.words import counted
from cdc.topics.partitioner import WRITERS, KeyPlacement

_LONGEST = 60


def placement_table(found: KeyPlacement) -> Table:
    """Returns a table with a row for each partition."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("P", "Keys", "of all", "Records", "of all"):
        table.add_column(title, justify="right")
    for number, (keys, records) in enumerate(zip(found.keys, found.records, strict=True)):
        row = (number, f"{keys:,}", _share(keys, sum(found.keys)), f"{records:,}", _share(records, sum(found.records)))
        table.add_row(*map(str, row))
    return table


def placement_lines(found: KeyPlacement) -> Iterator[str]:
    """Yields the verdict, then what is wrong, then the keys with the most records."""
    yield f"  {_verdict(found)}"
    if found.split_count:
        yield f"! {counted(found.split_count, 'key')} in more than one partition; for instance:"
        for each in found.split:
            yield f"    {_text(each.key)} in {', '.join(map(str, each.partitions))}"
        yield (
            "    what to do: give both writers the same partitioner (librdkafka: partitioner=murmur2_random); if "
            "partitions were added, copy everything to a new topic. Old values stay until their partition gets a "
            "tombstone for the key"
        )
    if found.keyless:
        yield f"! {counted(found.keyless, 'record')} without a key"
    for key, records in found.hot:
        yield f"  {records:>12,} records of {_text(key)}"


def placement_document(found: KeyPlacement) -> dict[str, Any]:
    """Returns what was found as plain values."""
    return {
        "partitioner": found.partitioner,
        "mixed": found.mixed,
        "matches": dict(found.matches),
        "sampled_keys": found.sampled,
        "partitions": [
            {"partition": number, "keys": keys, "records": records}
            for number, (keys, records) in enumerate(zip(found.keys, found.records, strict=True))
        ],
        "split_count": found.split_count,
        "split": [{"key": _text(each.key), "partitions": each.partitions} for each in found.split],
        "hot": [{"key": _text(key), "records": records} for key, records in found.hot],
        "keyless": found.keyless,
    }


def _verdict(found: KeyPlacement) -> str:
    if not found.matches:
        few = "one partition holds everything" if len(found.keys) == 1 else "too few keys to tell"
        return f"partitioner unknown: {few}"
    if found.partitioner is not None:
        return f"partitioner {found.partitioner}: {WRITERS[found.partitioner]} ({found.sampled:,} keys tried)"
    if found.mixed is not None:
        shares = " and ".join(f"{name} ({found.matches[name]:.0%} of the keys)" for name in found.mixed)
        return f"two writers with different partitioners: {shares}"
    shares = ", ".join(f"{name} {share:.0%}" for name, share in found.matches.items())
    return f"no partitioner that is known here: the writer has its own, or chooses partitions itself ({shares})"


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "-"


def _text(key: bytes) -> str:
    text = key.decode("utf-8", "backslashreplace")
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
