"""Checks what a person asks for: captured tables, conditions that the server understands, backfills that exist."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Final

from cdc.base.config import Config
from cdc.base.errors import ConfigError, SourceRefused, SourceUnavailable
from cdc.bridge.backfill.pace import share
from cdc.bridge.scope.choice import choose
from cdc.bridge.scope.topics import topic_specifications
from cdc.bridge.source.condition import check_condition
from cdc.bridge.source.connect import LOOK_S, connect
from cdc.bridge.source.locks import naming_locks
from cdc.contract.backfill import is_backfill_key, parse_backfill
from cdc.contract.naming import progress_topic
from cdc.contract.ports import Partition
from cdc.contract.progress import stream_key
from cdc.contract.record import BackfillCommand, BackfillOptions, BackfillProgress, BackfillRequest
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.publish.requests import write_request
from cdc.kafka.publish.topics import TopicAdmin
from cdc.kafka.replay.backfills import Published, read_published
from cdc.kafka.replay.bounded import topic_ends
from cdc.kafka.replay.reader import TopicReader

_CHANGE_S: Final = 15.0
_POLL_S: Final = 0.2
_RECORDS_PER_POLL: Final = 1_000

_CHANGES: Final[Mapping[BackfillCommand, tuple[str, ...]]] = {
    "pause": ("waiting", "running"),
    "resume": ("paused",),
    "cancel": ("waiting", "running", "paused"),
}
"""The commands, and the states in which a backfill is changed by each."""


def new_start(tables: Sequence[str], options: BackfillOptions) -> BackfillRequest:
    """Returns a request to publish tables again, with an id of its own."""
    where, rate, sweep = options.where, options.rate, options.sweep
    return BackfillRequest(uuid.uuid4().hex, "start", tuple(tables), where=where, rate=rate, sweep=sweep)


def new_change(command: BackfillCommand, tables: Sequence[str]) -> BackfillRequest:
    """Returns a request to pause, resume or cancel what is under way, with an id of its own."""
    return BackfillRequest(uuid.uuid4().hex, command, tuple(tables))


def tables_to_backfill(config: Config, wanted: Sequence[str], where: str | None) -> tuple[str, ...]:
    """Returns the tables that are asked for; all that are captured when none is named.

    Raises:
        ConfigError: a table is not captured, or the server does not understand ``where``. Says why, or what is.
        SourceRefused: no table is captured.
        SourceLocked: somebody holds a lock on a table with a condition, so its columns cannot be looked at.
    """
    source = config.source
    with connect(source.connection(), application_name="cdc backfill", lock_timeout_s=LOOK_S) as conn:
        tables, left_out = choose(conn, config, may_be_empty=bool(wanted))
        if why := [each for each in left_out if each.table in wanted]:
            raise ConfigError("; ".join(each.reason for each in why), remedy="\n".join(each.remedy for each in why))
        found = {each.qualified_name: each for each in tables}
        if not found:
            raise SourceRefused(
                f"no table matches source.tables ({', '.join(source.tables)})",
                remedy="correct source.tables, or create the tables first",
            )
        if missing := [each for each in wanted if each not in found]:
            raise ConfigError(
                f"not captured: {', '.join(missing)}",
                remedy=f"name some of {', '.join(found)}; or add it to source.tables, then restart the bridge",
            )
        if where is not None:
            for table in (found[name] for name in wanted):
                with naming_locks(conn, [table.oid], "AccessShareLock"):
                    check_condition(conn, table.namespace, table.name, where)
    return tuple(dict.fromkeys(wanted)) or tuple(found)


def known_backfills(config: Config) -> Published:
    """Returns what the progress topic holds; raises what ``read_published`` raises."""
    admin = BrokerAdmin(config.kafka.client_options())
    return read_published(admin, progress_topic(config.name), stream_key(config.source.slot))


def backfills_to_change(
    known: Published, command: BackfillCommand, wanted: Sequence[str]
) -> dict[str, BackfillProgress]:
    """Returns the backfills that ``command`` changes: all of them when no table is named.

    Raises:
        ConfigError: there is none, or a table that is named has none.
    """
    states = _CHANGES[command]
    found = {table: each.progress for table, each in known.backfills.items() if each.progress.state in states}
    missing = [each for each in wanted if each not in found]
    if missing or not found:
        what = " or ".join(states)
        of = f" of {', '.join(missing)}" if missing else ""
        raise ConfigError(
            f"there is nothing to {command}: no backfill{of} is {what}",
            remedy=f"name some of {', '.join(found)}" if found else "cdc backfill --list shows what there is",
        )
    return {table: each for table, each in found.items() if table in wanted or not wanted}


def open_backfills(known: Published, tables: Sequence[str]) -> dict[str, BackfillProgress]:
    """Returns those backfills of these tables that are not over."""
    found = {table: known.backfills[table].progress for table in tables if table in known.backfills}
    return {table: each for table, each in found.items() if each.is_open}


def refuse_to_begin_anew(open_now: Mapping[str, BackfillProgress]) -> ConfigError:
    """Returns the error for a new request that would throw away what these backfills have done."""
    names = ", ".join(f"{table} ({each.state}, {share(each):.0%} done)" for table, each in open_now.items())
    return ConfigError(
        f"under way already: {names}",
        remedy="cdc backfill without options follows what is under way; --yes gives it up and begins anew",
    )


def make_bookkeeping_topics(config: Config) -> None:
    """Make the progress topic, which a request is written into, in case no bridge ever ran to make it."""
    TopicAdmin(BrokerAdmin(config.kafka.client_options())).create_missing(topic_specifications(config, ()))


def ask(config: Config, request: BackfillRequest) -> dict[Partition, int]:
    """Write the request into the progress topic. Returns where the topic ended before.

    Raises:
        TopicRefused: there is no progress topic, or the client may not write to it.
        TopicUnavailable: no broker answers.
    """
    options, topic = config.kafka.client_options(), progress_topic(config.name)
    starts = topic_ends(BrokerAdmin(options), topic)
    write_request(options, topic, request)
    return starts


def wait_for_change(
    config: Config, request: BackfillRequest, starts: Mapping[Partition, int]
) -> list[BackfillProgress]:
    """Wait until a bridge has done what the request says. Returns the backfills as they are then.

    Args:
        config: the whole configuration.
        request: a request other than a start.
        starts: where the progress topic ended before the request was written.

    Raises:
        SourceUnavailable: no bridge has taken the request; one that starts later will.
    """
    changed: dict[str, BackfillProgress] = {}
    deadline = time.monotonic() + _CHANGE_S
    reader = TopicReader(config.kafka.client_options())
    try:
        reader.add(starts)
        while changed.keys() < set(request.tables):
            for record in reader.poll(_RECORDS_PER_POLL, _POLL_S):
                if is_backfill_key(record.key) and record.value is not None:
                    progress = parse_backfill(record.value)
                    if progress.table in request.tables and progress.state not in _CHANGES[request.command]:
                        changed[progress.table] = progress
            if time.monotonic() > deadline:
                raise SourceUnavailable(
                    f"no bridge has taken the request within {_CHANGE_S:g} s; the next one that runs will",
                    remedy="start the bridge: cdc run",
                )
    finally:
        reader.close()
    return list(changed.values())
