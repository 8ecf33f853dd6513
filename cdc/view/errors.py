"""What is wrong with a question to a view: the asker's fault, or too early."""

from __future__ import annotations

from cdc.errors import CdcError


class WrongQuestion(CdcError):
    """The question cannot be answered, however often it is asked."""

    exit_code = 2


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
