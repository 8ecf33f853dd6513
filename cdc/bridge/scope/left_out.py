"""A table that is not captured, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Cause: TypeAlias = Literal["table", "rights", "publication", "format"]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A table that is not captured.

    Attributes:
        table: ``schema.table``.
        reason: why, in a sentence that names it.
        remedy: what to do about that.
        is_named: whether ``source.tables`` spells it out; otherwise only a pattern matches it.
        cause: the kind of reason.
    """

    table: str
    reason: str
    remedy: str
    is_named: bool
    cause: Cause
