"""What the section ``source`` says of single tables (columns that may not leave, outboxes), and of logical messages.

The defaults of an outbox are the names that Debezium uses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from cdc.base.config import checks

_STRICT: Final = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, hide_input_in_errors=True)
_Column: TypeAlias = Annotated[str, AfterValidator(checks.identifier), AfterValidator(checks.present)]


def _null(value: Any) -> Any:
    """YAML reads the word as no value."""
    return "null" if value is None else value


_Names: TypeAlias = Annotated[tuple[_Column, ...], BeforeValidator(checks.split_list)]
_Mask: TypeAlias = Annotated[Literal["null", "last4", "sha256", "sha256-joinable"], BeforeValidator(_null)]


class ColumnsConfig(BaseModel):
    """What of one table's rows may not leave."""

    model_config = _STRICT

    exclude: _Names = ()
    """Columns that are left out of topics and histories; none by default."""
    mask: dict[_Column, _Mask] = Field(default_factory=dict)
    """Columns whose values leave masked: null, last4 (the last four characters), sha256 (a hash under the salt), or
    sha256-joinable (a hash that is the same in each column with this mask); none by default."""
    keep: _Names = ()
    """Columns that leave as they are; only policy: strict needs the list, so it is empty by default."""
    policy: Literal["open", "strict"] = "open"
    """What becomes of a column without a rule: open (default, because most columns tell no secret) lets it leave;
    strict stops the table until a rule names the column, so that nothing new leaves unseen."""

    @model_validator(mode="after")
    def _check(self) -> ColumnsConfig:
        named = [*self.exclude, *self.mask, *self.keep]
        if twice := sorted({each for each in named if named.count(each) > 1}):
            raise ValueError(f"{twice[0]} is named more than once: a column has one rule")
        if self.keep and self.policy == "open":
            raise ValueError("keep says nothing without policy: strict, as every column without a rule leaves")
        if not named and self.policy == "open":
            raise ValueError("it names no column: add exclude or mask, or leave it out")
        return self

    @property
    def needs_salt(self) -> bool:
        """Whether a column leaves as a hash."""
        return any(each.startswith("sha256") for each in self.mask.values())


_COLUMN: Final = re.compile(r"\{([^{}]+)\}")
_MAX_PREFIX: Final = 200
_OWN_PREFIX: Final = "cdc"
"""The prefix of messages that the bridge emits so that the server writes out WAL; all of cdc's own begin with it."""
_RESERVED_HEADERS: Final = ("cdc", "id")


def _template(text: str) -> str:
    """Checks a topic's template: what is not a column is a part of a topic's name."""
    checks.topic_name(_COLUMN.sub("x", text))
    return text


def _headers(columns: dict[str, str]) -> dict[str, str]:
    for header in columns:
        if header in _RESERVED_HEADERS:
            raise ValueError(f'header "{header}" is written already: choose another name')
        checks.present(header)
    return columns


class QuarantineConfig(BaseModel):
    """How many rows of a table may stand aside: because they cannot be carried, or because the replica refuses them."""

    model_config = _STRICT

    budget: Annotated[int, Field(strict=True, ge=1, le=10_000)] = 100
    """Keys that may be in quarantine at once; with one more, the bridge stops, or the replica's table. 100 are more
    than a slip, and few enough for a person to look at each."""


class OutboxConfig(BaseModel):
    """The events of an outbox table: where they go, and which columns they are made of."""

    model_config = _STRICT

    topic: Annotated[str, AfterValidator(_template)] = "outbox.event.{aggregatetype}"
    """Topic of an event; each {column} stands for that column's text. The default is the one of Debezium's event
    router."""
    id: _Column = "id"
    """Column with the event's id, which becomes the header id."""
    key: _Column = "aggregateid"
    """Column that becomes the key, as text: events with one key stay in order."""
    payload: _Column = "payload"
    """Column that becomes the value: bytea as its bytes, every other type as PostgreSQL's text."""
    headers: Annotated[dict[str, _Column], AfterValidator(_headers)] = Field(default_factory=dict)
    """Further headers: the column of each, by the header's name, for instance traceparent: traceparent."""

    @property
    def topic_columns(self) -> tuple[str, ...]:
        """The columns that the topic's name is made of."""
        return tuple(_COLUMN.findall(self.topic))

    @property
    def topic_prefix(self) -> str:
        """The topic's name up to the first column; the whole name if it has none."""
        return self.topic.partition("{")[0]


def check_outboxes(name: str, tables: tuple[str, ...], outboxes: Mapping[str, OutboxConfig], delivery: str) -> None:
    """Refuses outboxes that are captured as well, that need another delivery, or that write to topics of tables."""
    for table, outbox in outboxes.items():
        if table in tables:
            raise ValueError(
                f"source.outbox: {table} is in source.tables as well; a table is captured, or it is an outbox: take it "
                "out of one of the two"
            )
        if outbox.topic.startswith(f"{name}."):
            raise ValueError(
                f'source.outbox: {table} → "{outbox.topic}" may collide with the topic of a table, because "{name}." '
                "begins their names; choose a topic that begins differently"
            )
        if delivery == "idempotent":
            raise ValueError(
                "source.outbox needs delivery: transactional, so that state and events are readable together, and no "
                "event comes twice"
            )


def _prefix(text: str) -> str:
    """Checks the prefix of messages: what PostgreSQL takes, of a length that a person would write."""
    if len(text) > _MAX_PREFIX or "\0" in text:
        raise ValueError(f"write at most {_MAX_PREFIX} characters, and no NUL")
    if text == _OWN_PREFIX or text.startswith(f"{_OWN_PREFIX}-"):
        raise ValueError("cdc emits messages with this prefix itself, which are not events: choose another prefix")
    return text


Prefix: TypeAlias = Annotated[str, AfterValidator(checks.present), AfterValidator(_prefix)]


class MessagesConfig(BaseModel):
    """The events of logical messages with one prefix: where they go, and what the content is."""

    model_config = _STRICT

    topic: Annotated[str, AfterValidator(checks.topic_name)]
    """Topic of the events."""
    content: Literal["raw", "json"] = "raw"
    """raw (default, because PostgreSQL demands no form): the content is the value, and there is no key; json: the
    content is an object of id, key, payload and headers."""


def check_messages(name: str, messages: Mapping[str, MessagesConfig], delivery: str) -> None:
    """Refuses messages that need another delivery, or that write to topics of tables."""
    for prefix, each in messages.items():
        if each.topic.startswith(f"{name}."):
            raise ValueError(
                f'source.messages: {prefix} → "{each.topic}" may collide with the topic of a table, because "{name}." '
                "begins their names; choose a topic that begins differently"
            )
    if messages and delivery == "idempotent":
        raise ValueError(
            "source.messages needs delivery: transactional, so that state and events are readable together, and no "
            "event comes twice"
        )
