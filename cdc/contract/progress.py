"""Keys and values of the records in ``{name}.__progress`` that say how far the stream is published."""

from __future__ import annotations

from typing import Any

import orjson

from cdc.base.lsn import LSN
from cdc.contract.parsing import integer, parse_record, text
from cdc.contract.record import Lead, Position, Progress, SourceIdentity


def stream_key(slot: str) -> bytes:
    """The key of the record with a slot's progress."""
    return orjson.dumps({"stream": slot})


def progress_value(progress: Progress) -> bytes:
    """The record's value: one JSON object."""
    partial, source, lead = progress.partial, progress.source, progress.lead
    messages = {"messages": progress.messages} if progress.messages else {}
    ahead = {} if lead is None else {"lead": {"sent": str(lead.sent), "open": lead.is_open}}
    return orjson.dumps(
        {
            "v": 1,
            "lsn": str(progress.lsn),
            "partial": None if partial is None else {"lsn": str(partial.lsn), "seq": partial.seq, **messages},
            "commit_ts": progress.commit_ts,
            "source": {
                "system_identifier": source.system_identifier,
                "timeline": source.timeline,
                "database_oid": source.database_oid,
            },
            "unseen": progress.unseen,
            **ahead,
            **({"quarantined": dict(progress.quarantined)} if progress.quarantined else {}),
        }
    )


def parse_progress(value: bytes) -> Progress:
    """Parse the value of a progress record.

    Raises:
        DecodeError: not a progress value of version 1.
    """
    return parse_record("progress", "progress", value, _progress)


def _progress(fields: dict[str, Any]) -> Progress:
    partial, source, lead = fields["partial"], fields["source"], fields.get("lead")
    return Progress(
        lsn=LSN.parse(fields["lsn"]),
        partial=None if partial is None else Position(LSN.parse(partial["lsn"]), integer(partial["seq"])),
        commit_ts=integer(fields["commit_ts"]),
        source=SourceIdentity(
            text(source["system_identifier"]), integer(source["timeline"]), integer(source["database_oid"])
        ),
        unseen=tuple(map(integer, fields["unseen"])),
        lead=None if lead is None else Lead(LSN.parse(lead["sent"]), lead["open"] is True),
        messages=0 if partial is None else integer(partial.get("messages", 0)),
        quarantined=tuple((table, integer(count)) for table, count in fields.get("quarantined", {}).items()),
    )
