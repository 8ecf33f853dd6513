"""What is wrong with a question to a view: the asker's fault, or too early."""

from __future__ import annotations

from typing import Final

from cdc.base.errors import CdcError

_ASK_OTHERWISE: Final = "ask for what there is: /v1/tables has the tables, with key columns and indexes"


class WrongQuestion(CdcError):
    """The question cannot be answered, however often it is asked.

    Args:
        message, remedy: as for ``CdcError``.
    """

    exit_code = 2

    def __init__(self, message: str, *, remedy: str = _ASK_OTHERWISE) -> None:
        super().__init__(message, remedy=remedy)


class UnknownTable(WrongQuestion):
    """The view has no such table."""


class WrongKey(WrongQuestion):
    """Not a key of this table."""


class UnknownIndex(WrongQuestion):
    """The table has no such index."""


class WrongCursor(WrongQuestion):
    """A cursor or token that is none, or that belongs to another store, table or index."""


class NotLoaded(CdcError):
    """The table was not yet read to its end for the first time: it has no rows to show, which does not mean none."""

    retryable = True
    exit_code = 4
