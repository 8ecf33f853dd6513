"""Takes what people and the bridge itself ask of backfills, and ends those of tables that leave the scope."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Final, NamedTuple

import structlog

from cdc.base.lsn import LSN
from cdc.bridge.backfill.ledger import Ledger
from cdc.bridge.backfill.stream_side import StreamSide
from cdc.bridge.backfill.surroundings import Requests, Surroundings
from cdc.bridge.backfill.table import now_us
from cdc.bridge.order.demand import Demand
from cdc.bridge.source.table import TableInfo
from cdc.contract.backfill import request_key
from cdc.contract.record import BackfillCause, BackfillCommand, BackfillOptions, BackfillProgress, BackfillRequest

NOT_CAPTURED: Final = "the table is not captured any more"

log = structlog.get_logger("cdc.backfill")


class BackfillOrder(NamedTuple):
    """Why and how a table is published again. ``request`` is the id of a person's request; without it, a new one."""

    cause: BackfillCause
    options: BackfillOptions = BackfillOptions()
    request: str = ""


class Intake:
    """Takes the demands of one session.

    Args:
        ledger: records what was asked.
        requests: what people ask.
        stream: tells where the stream is.
        around: knows which tables are in scope.
    """

    def __init__(self, ledger: Ledger, requests: Requests, stream: StreamSide, around: Surroundings) -> None:
        self._ledger = ledger
        self._requests = requests
        self._stream = stream
        self._around = around

    def attend(self) -> None:
        """Take up what people have asked since the last call."""
        for request in self._requests.take():
            self._obey(request)
            self._around.note(request_key(request.request), None)

    def close(self) -> None:
        """Stop reading requests."""
        self._requests.close()

    def demand(self, demand: Demand) -> None:
        """Take up a demand of the bridge itself."""
        if found := self._around.tables().get(demand.table):
            log.info("backfill needed", table=demand.table, reason=demand.reason)
            self.add(*found, BackfillOrder("gap", BackfillOptions(sweep=demand.sweep)))
        else:
            self.leave(demand.table)

    def add(self, table: TableInfo, topic: str, asked: BackfillOrder) -> None:
        """Take a table up from its beginning, and give up what is under way for it.

        Args:
            table: the table, as the catalog has it now.
            topic: its state topic.
            asked: why, and how.
        """
        before = self._ledger.find(table.qualified_name)
        progress = None if before is None else before.progress
        new = new_progress(table, topic, asked, progress, self._stream.complete_lsn)
        if (new.sweep, new.where) != (asked.options.sweep, asked.options.where):
            log.info("all rows are published, with a sweep: an earlier backfill has not finished that", table=new.table)
        self._ledger.put(new)

    def leave(self, name: str) -> None:
        """Note that a table is not captured any more. One without a record is published when it joins, anyway."""
        if (backfill := self._ledger.find(name)) is not None:
            self._ledger.put(not_captured(backfill.progress))

    def _obey(self, request: BackfillRequest) -> None:
        """Do what a person asks. Tables that are not in scope are left out with a warning."""
        in_scope = self._around.tables()
        for name in request.tables or in_scope:
            if name not in in_scope:
                log.warning(
                    "backfill requested for a table that is not captured",
                    table=name,
                    remedy=f"add it: cdc tables add {name}; then request the backfill again",
                )
            elif request.command == "start":
                self.add(*in_scope[name], BackfillOrder("request", request.options, request.request))
            elif (backfill := self._ledger.find(name)) is not None:
                self._change(backfill.progress, request.command)
        log.info("backfill request", command=request.command, tables=list(request.tables) or "all")

    def _change(self, progress: BackfillProgress, command: BackfillCommand) -> None:
        """Pause, resume or cancel a backfill, if its state allows that."""
        if command == "cancel" and progress.is_open:
            self._ledger.put(replace(progress, state="cancelled"))
        elif command == "pause" and progress.state in ("waiting", "running"):
            self._ledger.put(replace(progress, state="paused"))
        elif command == "resume" and progress.state == "paused":
            self._ledger.put(replace(progress, state="waiting"))


def no_backfill(table: str, topic: str, lsn: LSN) -> BackfillProgress:
    """Returns the record for a table that was never backfilled (``snapshot.mode: never``)."""
    now = now_us()
    return BackfillProgress(
        table=table,
        topic=topic,
        request=uuid.uuid4().hex,
        state="done",
        cause="initial",
        whole=False,
        where=None,
        rate=None,
        sweep=False,
        below=(),
        leaves=(),
        estimated_rows=0,
        rows=0,
        swept=0,
        seq=0,
        lsn=lsn,
        started_at=now,
        updated_at=now,
    )


def new_progress(
    table: TableInfo, topic: str, asked: BackfillOrder, before: BackfillProgress | None, lsn: LSN
) -> BackfillProgress:
    """Returns the record of a backfill that was just asked for.

    Args:
        table: the table, as the catalog has it.
        topic: its state topic.
        asked: why it was asked for, and how.
        before: the record of the previous backfill, if any. A sweep that it did not finish is taken over.
        lsn: where the stream is.
    """
    options = asked.options
    if before is not None and before.sweep and not before.whole:
        # The keys to be swept are still there, whatever became of that backfill; and a sweep needs all rows
        options = replace(options, sweep=True, where=None)
    return replace(
        no_backfill(table.qualified_name, topic, lsn),
        request=asked.request or uuid.uuid4().hex,
        state="waiting",
        cause=asked.cause,
        # A person's request does not make the topic incomplete
        whole=asked.cause == "request" and (before is None or before.whole),
        where=options.where,
        rate=options.rate,
        sweep=options.sweep,
        estimated_rows=table.estimated_rows,
        # Never starts over, so that (lsn, seq) grows even if two backfills follow one another on an idle database
        seq=before.seq if before is not None else 0,
    )


def not_captured(progress: BackfillProgress) -> BackfillProgress:
    """Returns the record of a table that is no longer captured. If it comes back, it is loaded anew."""
    return replace(progress, state="failed", whole=False, reason=NOT_CAPTURED)
