"""The modes of an envelope as a record's header and ``__schemas`` spell them: ``precise.adaptive.bytes.json.plain``."""

from __future__ import annotations

from typing import Any, Final, get_args, get_type_hints

from cdc.contract.record import DebeziumModes

_KNOWN: Final = {name: get_args(hint) for name, hint in get_type_hints(DebeziumModes).items() if name != "schemas"}
_SCHEMAS: Final = {"plain": False, "schemas": True}


def mark_of(modes: DebeziumModes) -> str:
    """Returns the modes in one word."""
    return ".".join((*modes[:-1], "schemas" if modes.schemas else "plain"))


def modes_of(mark: str) -> DebeziumModes:
    """Returns the modes that ``mark_of`` spelled.

    Raises:
        ValueError: a newer version of cdc, or another program, wrote it.
    """
    *given, schemas = mark.split(".")
    if len(given) != len(_KNOWN) or schemas not in _SCHEMAS:
        raise ValueError(f"envelope {mark!r}, which a newer version of cdc writes")
    for name, value in zip(_KNOWN, given, strict=True):
        if value not in _KNOWN[name]:
            raise ValueError(f"envelope {mark!r}, which a newer version of cdc writes")
    found: dict[str, Any] = dict(zip(_KNOWN, given, strict=True))
    return DebeziumModes(**found, schemas=_SCHEMAS[schemas])
