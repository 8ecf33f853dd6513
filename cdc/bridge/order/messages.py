"""Turns logical decoding messages (``pg_logical_emit_message``) into events: key, value and headers. Pure.

A message is a prefix and bytes. The prefix decides the topic. The bytes are the value; or a JSON object has id, key,
payload and headers, which members of an outbox's row have otherwise. What has no place in an event is refused instead
of dropped, because nobody would miss it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from cdc.base.errors import EncodeError
from cdc.bridge.order.outbox import Event
from cdc.contract.change import LogicalMessage
from cdc.contract.json_members import members
from cdc.contract.record import EventParts

ContentForm: TypeAlias = Literal["raw", "json"]

NO_SCHEMA: Final = "0" * 16
"""The fingerprint in the header of an event that no table defines."""

_RESERVED_HEADERS: Final = ("cdc", "id")

_MEMBERS: Final = ("id", "key", "payload", "headers")
_STRUCTURES: Final = (b"{", b"[")
_NULL: Final = b"null"

_text = msgspec.json.Decoder(str).decode


@dataclass(frozen=True, slots=True)
class MessageRule:
    """What becomes of the messages with one prefix.

    Attributes:
        topic: where their events go.
        content: ``raw`` if the content is the value; ``json`` if it is an object of id, key, payload and headers.
    """

    topic: str
    content: ContentForm


class MessageEncoder:
    """Makes the events of messages.

    Args:
        rules: what becomes of each prefix; messages with other prefixes are not events.
    """

    def __init__(self, rules: Mapping[str, MessageRule]) -> None:
        self._rules = rules

    def takes(self, prefix: str) -> bool:
        """Whether messages with this prefix are events."""
        return prefix in self._rules

    def event(self, message: LogicalMessage) -> Event | None:
        """Returns the event that a message stands for; None if it is not an event.

        Without a key, the prefix decides the partition, so that all messages with one prefix stay in order.

        Raises:
            EncodeError: the content does not have the form that the rule says.
        """
        rule = self._rules.get(message.prefix)
        if rule is None:
            return None
        found = _Content(None, None, message.content, ())
        if rule.content == "json":
            try:
                found = _taken_apart(message.content)
            except (ValueError, msgspec.MsgspecError) as error:
                raise _refusal(message, str(error)) from error
        event_id = str(message.lsn).encode() if found.event_id is None else found.event_id
        headers = (("id", event_id), *found.headers)
        parts = EventParts(message.prefix.encode(), found.key is not None, headers)
        return rule.topic, found.key or b"", found.value, parts


class _Content(NamedTuple):
    event_id: bytes | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


def _taken_apart(content: bytes) -> _Content:
    content.decode()  # msgspec passes over what it does not decode
    found = {name: bytes(value).strip() for name, value in members(content).items()}
    if strange := sorted(found.keys() - set(_MEMBERS)):
        raise ValueError(f"member {strange[0]!r} has no place in an event: put it into payload or headers")
    if "payload" not in found:
        raise ValueError("member 'payload' is missing")
    payload = found["payload"]
    return _Content(
        _scalar("member 'id'", found.get("id", _NULL)),
        _scalar("member 'key'", found.get("key", _NULL)),
        None if payload == _NULL else payload,
        tuple(_headers(found.get("headers", _NULL))),
    )


def _headers(source: bytes) -> Iterator[tuple[str, bytes]]:
    if source == _NULL:
        return
    if not source.startswith(b"{"):
        raise ValueError("member 'headers' is not an object")
    for name, value in members(source).items():
        if name in _RESERVED_HEADERS:
            raise ValueError(f"header {name!r} is written already")
        if (text := _scalar(f"header {name!r}", bytes(value).strip())) is not None:
            yield name, text


def _scalar(what: str, value: bytes) -> bytes | None:
    """Returns a text without its quotes, and a number, true or false as it is written; None for null."""
    if value.startswith(_STRUCTURES):
        raise ValueError(f"{what} is neither text nor a number")
    if value == _NULL:
        return None
    return _text(value).encode() if value.startswith(b'"') else value


def _refusal(message: LogicalMessage, problem: str) -> EncodeError:
    prefix = message.prefix
    return EncodeError(
        f"message with prefix {prefix!r} at LSN {message.lsn} cannot be an event with content: json: {problem}",
        remedy=f"the message is in the WAL and stays there: set source.messages: {{{prefix}: {{content: raw}}}}, which "
        "takes any content, or take the prefix out to have no event; start, and set it back later; nothing was skipped",
    )
