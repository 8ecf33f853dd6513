"""Why a question to a view has no answer: it is wrong, or it comes too early."""

from __future__ import annotations

from typing import Final

from cdc.base.errors import CdcError

_ASK_OTHERWISE: Final = "ask for what there is: /v1/tables lists the tables with their key columns and indexes"


class WrongQuestion(CdcError):
    """The question cannot be answered, however often it is asked.

    Args:
        message, remedy: as for ``CdcError``.
    """

    exit_code = 2

    def __init__(self, message: str, *, remedy: str = _ASK_OTHERWISE) -> None:
        super().__init__(message, remedy=remedy)


class UnknownTable(WrongQuestion):
    """The view does not have this table."""


class WrongKey(WrongQuestion):
    """The key is not a key of this table."""


class UnknownIndex(WrongQuestion):
    """The table does not have this index."""


class WrongCursor(WrongQuestion):
    """The cursor or token is invalid, or belongs to another store, table or index."""


class NotLoaded(CdcError):
    """The table is being read for the first time. It may have rows, but none can be shown yet."""

    retryable = True
    exit_code = 4
