"""What a replica database knows of itself; the rest of this room is the same for all databases."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

import sqlalchemy as sa
from sqlalchemy.types import UserDefinedType

from cdc.base.errors import ReplicaRefused, ReplicaUnavailable
from cdc.contract.formats.format import NULL
from cdc.contract.kinds import FLOATS, Kind
from cdc.sink.replica import Lack, NameRules, ReplicaName

_WAIT: Final = "cdc tries again by itself; if that does not help, look at the replica's server or disk"


class SqlType(UserDefinedType[Any]):
    """A type that SQLAlchemy renders as given."""

    cache_ok = True

    def __init__(self, sql: str) -> None:
        self.sql = sql

    def get_col_spec(self, **_: Any) -> str:
        return self.sql


@dataclass(frozen=True, slots=True)
class Conversion:
    """Makes the driver's values of texts, none of which is NULL; raises ``ValueError`` for one that does not fit.

    Attributes:
        one: converts one text; the error says what is wrong with it.
        many: converts the texts of a column at once, which takes a fraction of the time.
    """

    one: Callable[[str], Any]
    many: Callable[[Sequence[str]], Sequence[Any]]

    def __call__(self, text: str) -> Any:
        return self.one(text)


class StorageForm(NamedTuple):
    """How a column of the replica holds values.

    Attributes:
        sql: its type in DDL.
        value: the text that PostgreSQL prints → the driver's value; raises ``ValueError`` for a value that the column
            cannot hold exactly. None if the driver takes the text itself.
    """

    sql: str
    value: Callable[[str], Any] | None = None

    def values(self, texts: Sequence[str]) -> Sequence[Any]:
        """Returns the driver's values; raises ``ValueError`` as ``value`` does."""
        if NULL not in texts:
            return self._of_present(texts)
        found = iter(self._of_present([text for text in texts if text != NULL]))
        return [None if text == NULL else next(found) for text in texts]

    def _of_present(self, texts: Sequence[str]) -> Sequence[Any]:
        if self.value is None:
            return texts
        if isinstance(self.value, Conversion):
            with contextlib.suppress(ValueError):  # which of them it is, only the other way tells
                return self.value.many(texts)
        return [*map(self.value, texts)]


def array_form(kind: Kind, sql: str) -> StorageForm:
    """Returns how a column of text holds arrays: as PostgreSQL prints them, which is not how it reads them.

    Args:
        kind: the kind of the elements.
        sql: the column's type.
    """
    return StorageForm(sql, _ARRAYS.get(kind))


_ARRAYS: Final[Mapping[Kind, Callable[[str], str]]] = {
    Kind.BOOL: lambda text: text.replace("true", "t").replace("false", "f"),
    **dict.fromkeys(FLOATS, lambda text: text.replace('"', "")),
}


class StoredColumn(NamedTuple):
    """A column of a table that exists.

    Attributes:
        name: as the replica spells it.
        sql: its type as the replica describes it.
        is_generated: the replica computes it, so the sink never writes it.
    """

    name: str
    sql: str
    is_generated: bool


class StoredTable(NamedTuple):
    """A table that exists.

    Attributes:
        columns: in their order.
        primary_key: its columns; empty if there is none.
        keys: the columns of each unique index that tells all different values apart, the primary key among them.
        flaw: what keeps the sink from using the table, whatever its columns are; else empty.
        remedy: what mends the flaw, if it is not to drop the table.
    """

    columns: Sequence[StoredColumn]
    primary_key: frozenset[str]
    keys: Collection[frozenset[str]]
    flaw: str = ""
    remedy: str = ""


class Blame(enum.Enum):
    """What an error of the replica means."""

    ROWS = "it does not take these rows, or this shape of a table"
    AWAY = "the same work may succeed later"
    REFUSED = "nothing succeeds until somebody acts"


class Explained(NamedTuple):
    """What an error means, and what to do about it; without a remedy, the one that suits most."""

    blame: Blame
    remedy: str = ""


class SoleWriter(Protocol):
    """The lock of the one sink of a name."""

    def take(self, connection: sa.Connection) -> bool:
        """Become the one sink until ``release``. Returns False while another one is.

        Args:
            connection: the session that will write the rows; no transaction is open.
        """

    def check(self, connection: sa.Connection) -> None:
        """See, within the open transaction, that no other sink has taken the lock since; until its end, none can.

        Raises:
            ReplicaUnavailable: another one has.
        """

    def release(self) -> None:
        """Let another sink begin. Does nothing if the lock was not taken."""

    def is_taken(self) -> bool:
        """Returns whether some sink has the lock."""


class ToldState(Protocol):
    """The place where a running sink tells its state, if nobody else can read it in the replica."""

    def write(self, name: str, state: Mapping[str, Any]) -> None:
        """Replace what the sink of this name has told."""

    def read(self, name: str) -> Mapping[str, Any] | None:
        """Returns what the sink of this name told last; None if nothing."""


class SqlDialect(Protocol):
    """A replica database, as far as it differs from others."""

    @property
    def told(self) -> ToldState | None:
        """The place where a running sink tells its state; None if it can be read in the replica."""

    @property
    def commits_ddl(self) -> bool:
        """Whether a change of a table commits the open transaction, so that there must be none."""

    @property
    def called(self) -> str:
        """The database's name for people."""

    @property
    def address(self) -> str:
        """The place of the replica, for messages: without a password."""

    @property
    def names(self) -> NameRules:
        """Its rules for names."""

    @property
    def table_options(self) -> Mapping[str, Any]:
        """Options with which SQLAlchemy creates a table."""

    @property
    def grants(self) -> str:
        """What gives the sink the right to write here, for a person."""

    def exists(self) -> bool:
        """Returns whether there is a database yet; a look must not make one."""

    def lacks(self) -> list[Lack]:
        """Returns the rights that the sink lacks here."""

    def connect(self, *, reads_only: bool = False) -> sa.Connection:
        """Open a new session, which takes part in no transaction yet."""

    def sole_writer(self, name: str) -> SoleWriter:
        """Returns the lock of the one sink of this name."""

    def form(self, sql_type: str, *, of_key: int, stored: str | None = None) -> StorageForm | None:
        """Returns how a column holds the values of a source type.

        Args:
            sql_type: the source's type as ``__schemas`` spells it.
            of_key: how many columns the key has, if this is one of them, in which different texts have to stay
                different; else 0.
            stored: the type of the column that exists; None for a new one.

        Returns:
            None if a column of the type ``stored`` would change values.
        """

    def stored(self, connection: sa.Connection, name: ReplicaName) -> StoredTable | None:
        """Returns what the replica's catalog says about a table; None if there is none."""

    def upsert(self, table: sa.Table, key: Sequence[str]) -> str:
        """Returns an INSERT of all columns of a row, for ``load``, that replaces the row with the same key."""

    def skips_equals(self, table: sa.Table) -> bool:
        """Returns whether an UPDATE of this table may leave ``0`` where it was told ``-0``, since the two are equal."""

    def delete(self, table: sa.Table, key: Sequence[str]) -> str:
        """Returns a DELETE of the row with a key, for ``load``."""

    def load(self, connection: sa.Connection, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement for each of the rows."""

    def explain(self, error: BaseException) -> Explained:
        """Returns what an error of the driver means."""


def first_line(error: BaseException) -> str:
    """Returns the first line of the driver's message."""
    cause = error.orig if isinstance(error, sa.exc.DBAPIError) and error.orig is not None else error
    # Some drivers put a number before the words
    words = cause.args[-1] if cause is not error and cause.args else cause
    lines = str(words).strip().splitlines()
    return lines[0] if lines else type(cause).__name__


def blamed(dialect: SqlDialect, error: sa.exc.DBAPIError | OSError) -> Explained:
    """Returns what an error means."""
    cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
    return dialect.explain(cause or error)


@contextlib.contextmanager
def replica_errors(dialect: SqlDialect, doing: str) -> Iterator[None]:
    """Translates what SQLAlchemy and the system raise inside the block.

    Args:
        dialect: explains the errors.
        doing: completes "the replica failed at …".

    Raises:
        ReplicaUnavailable: the work may succeed later.
        ReplicaRefused: the replica refuses for good.
    """
    try:
        yield
    except (sa.exc.DBAPIError, OSError) as error:
        told = blamed(dialect, error)
        text = f"the replica {dialect.address} failed at {doing}: {first_line(error)}"
        if told.blame is Blame.AWAY:
            raise ReplicaUnavailable(text, remedy=told.remedy or _WAIT) from error
        raise ReplicaRefused(text, remedy=told.remedy or "run `cdc check`: it says what the replica lacks") from error
