"""The section ``values``: in which forms values are written in JSON, where PostgreSQL's own text is not wanted."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from cdc.base.config import checks

_STRICT = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, hide_input_in_errors=True)

_TableName: TypeAlias = Annotated[str, AfterValidator(checks.table_name)]
_ColumnName: TypeAlias = Annotated[str, AfterValidator(checks.identifier), AfterValidator(checks.present)]
_Timestamps: TypeAlias = Literal["postgres", "iso"]
_Numeric: TypeAlias = Literal["text", "number"]
_Bytea: TypeAlias = Literal["hex", "base64"]
_Documents: TypeAlias = Literal["embedded", "string"]
_Schemas: TypeAlias = Literal["none", "connect"]


class Forms(NamedTuple):
    """The forms of values of one column."""

    timestamps: _Timestamps
    numeric: _Numeric
    bytea: _Bytea
    documents: _Documents


class ColumnValues(BaseModel):
    """The forms of one column; None takes the table's."""

    model_config = _STRICT

    timestamps: _Timestamps | None = None
    """The column's form of timestamp and timestamptz; by default the table's, because its
    columns have the same readers."""
    numeric: _Numeric | None = None
    """The column's form of numeric; by default the table's."""
    bytea: _Bytea | None = None
    """The column's form of bytea; by default the table's."""
    documents: _Documents | None = None
    """The column's form of json and jsonb; by default the table's."""


class TableValues(ColumnValues):
    """The forms of one table; None takes the bridge's."""

    timestamps: _Timestamps | None = None
    """The table's form of timestamp and timestamptz; by default the bridge's, as most tables have the same readers."""
    numeric: _Numeric | None = None
    """The table's form of numeric; by default the bridge's."""
    bytea: _Bytea | None = None
    """The table's form of bytea; by default the bridge's."""
    documents: _Documents | None = None
    """The table's form of json and jsonb; by default the bridge's."""
    schemas: _Schemas | None = None
    """Whether values of the table contain their schema; by default as values.schemas says."""
    columns: dict[_ColumnName, ColumnValues] = Field(default_factory=dict)
    """Forms by column, for columns that need others than the table; none by default."""


class ValuesConfig(BaseModel):
    """The forms in which values are written in JSON. Each default is PostgreSQL's own text, which fits every value."""

    model_config = _STRICT

    timestamps: _Timestamps = "postgres"
    """How timestamp and timestamptz are written: postgres (default, the server's text) or iso, as ISO 8601 has it:
    2026-01-31T12:30:00, with Z for timestamptz. Infinity and years before 1 or after 9999 stay the server's text."""
    numeric: _Numeric = "text"
    """How numeric is written: text (default, because many readers take every number for a double) or number: a JSON
    number where at most 15 digits are significant, so that it survives a double; the text for all others and NaN."""
    bytea: _Bytea = "hex"
    """How bytea is written: hex (default, the server's text, \\x and two digits for each byte) or base64, shorter."""
    documents: _Documents = "embedded"
    """How json and jsonb are written: embedded (default, so that readers need not parse twice) or string: a string that
    holds the document's text, so that the document null is not NULL."""
    schemas: _Schemas = "none"
    """Whether each value contains its schema: none (default, because a schema is larger than most rows) or connect,
    which Kafka Connect's JsonConverter reads with schemas.enable=true."""
    tables: dict[_TableName, TableValues] = Field(default_factory=dict)
    """Forms by schema.table, for tables that need others; none by default. columns below a table has those of single
    columns."""

    def of(self, table: str, column: str) -> Forms:
        """Returns the forms of a column, by its table's qualified name."""
        levels = self._levels(table, column)
        levels = self._levels(table, column)
        return Forms(
            next(each.timestamps for each in levels if each.timestamps),
            next(each.numeric for each in levels if each.numeric),
            next(each.bytea for each in levels if each.bytea),
            next(each.documents for each in levels if each.documents),
        )

    def _levels(self, table: str, column: str) -> list[ColumnValues | ValuesConfig]:
        of_table = self.tables.get(table)
        if of_table is None:
            return [self]
        of_column = of_table.columns.get(column)
        return [*(() if of_column is None else (of_column,)), of_table, self]

    def schemas_of(self, table: str) -> _Schemas:
        """Returns whether values of a table contain their schema, by its qualified name."""
        of_table = self.tables.get(table)
        return self.schemas if of_table is None or of_table.schemas is None else of_table.schemas

    @property
    def is_chosen(self) -> bool:
        """Whether any table may have other forms than the defaults."""
        return self != ValuesConfig()

    @property
    def is_chosen_for_all(self) -> bool:
        """Whether tables without an entry of their own have other forms than the defaults."""
        return self.model_copy(update={"tables": {}}).is_chosen

    @model_validator(mode="after")
    def _check(self) -> ValuesConfig:
        self._check_connect("values", self.schemas, self.of("", ""))
        for table, chosen in self.tables.items():
            for column in ("", *chosen.columns):
                place = f"values.tables.{table}" + (f".columns.{column}" if column else "")
                self._check_connect(place, self.schemas_of(table), self.of(table, column))
        return self

    @staticmethod
    def _check_connect(place: str, schemas: _Schemas, forms: Forms) -> None:
        """Refuse what does not fit Connect's types, and so would arrive as 0 or NULL."""
        if schemas != "connect":
            return
        if forms.documents == "embedded":
            raise ValueError(
                f"{place}: Kafka Connect has no type for embedded documents, and would make NULL of them: with "
                "schemas: connect, set documents: string"
            )
        if forms.numeric == "number":
            raise ValueError(
                f"{place}: Kafka Connect has no type for what is a number or a text, and would make NULL of one of "
                "them: with schemas: connect, leave out numeric: number"
            )
