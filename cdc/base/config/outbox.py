"""The option ``source.outbox``: tables whose new rows become events. The defaults are the names that Debezium uses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from cdc.base.config import checks

_COLUMN: Final = re.compile(r"\{([^{}]+)\}")
_RESERVED_HEADERS: Final = ("cdc", "id")

_Column: TypeAlias = Annotated[str, AfterValidator(checks.identifier), AfterValidator(checks.present)]


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


class OutboxConfig(BaseModel):
    """The events of an outbox table: where they go, and which columns they are made of."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, hide_input_in_errors=True)

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
