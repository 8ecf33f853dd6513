"""Decides whether bridge, sink and view are working, waiting or stuck, from what they moved and what they say. No I/O.

An open session proves nothing: its process may hang, and so may the server that it waits for. What a process says
about itself comes first. What the servers know about it comes next, because its port may be unreachable from here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from cdc.base.waits import LONG_S
from cdc.ops.status.parts import SourceStatus, Status
from cdc.ops.status.processes import ROLES, ProcessStatus, Role
from cdc.sink.replica import Blocker, SinkStatus

State: TypeAlias = Literal["running", "waiting", "retrying", "still", "blocked", "down", "missing", "lost", "unknown"]
"""waiting: for a server; retrying: after an error; still: nothing moves, and the process does not say why;
blocked: another session holds a lock that it needs."""

_SILENT_S: Final = LONG_S + 1
"""A bridge that has sent no message for this long counts as hanging: normally it sends one every second."""


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of a bridge, a sink or a view.

    Attributes:
        reasons: what is wrong, each with a remedy.
        since_s: for how long, in seconds; None if that is unknown.
    """

    state: State
    reasons: tuple[tuple[str, str], ...] = ()
    since_s: float | None = None


def process_of(status: Status, role: Role) -> ProcessStatus:
    """Returns what is known about one process."""
    return next((each for each in status.processes if each.role == role), ProcessStatus(role, "unasked"))


def bridge_standing(status: Status) -> Standing:
    """Returns the state of the bridge."""
    source, process = status.source.answer, process_of(status, "bridge")
    slot = None if source is None else source.slot
    if source is not None and slot is None:
        return _said_of(process) or Standing("missing")
    if slot is not None and slot.lost:  # first, because a bridge that retries says less about the cause
        return Standing("lost")
    if (said := _said_of(process)) is not None:
        return said
    if source is not None and (silent := _silent(source)) is not None:
        return silent
    if slot is None:
        return Standing("running" if process.state == "answers" and process.is_ready else "unknown")
    return Standing("running" if slot.active else "down")


def _silent(source: SourceStatus) -> Standing | None:
    """Returns the state of a bridge whose session is open but silent; None if it is not."""
    slot = source.slot
    if slot is None or not slot.active or source.heard_s is None or source.heard_s < _SILENT_S:
        return None
    text = (
        f"the bridge has said nothing to PostgreSQL for {source.heard_s:.0f} s (its walsender has pid "
        f"{slot.active_pid}): it waits for Kafka, or one of the two hangs"
    )
    return Standing("still", ((text, _look_for("bridge")),), source.heard_s)


def sink_standing(status: Status) -> Standing:
    """Returns the state of the sink. The replica knows which session keeps it waiting."""
    sink = None if status.sink is None else status.sink.answer
    process = process_of(status, "sink")
    said = _said_of(process)
    if sink is None:
        return said or Standing("unknown")
    published = status.topics.answer
    is_behind = published is not None and sink.applied_lsn is not None and published.lsn > sink.applied_lsn
    if (blocked := _blocked(sink)) is not None:  # first, because it names the session that must end
        return blocked
    if said is not None:
        return said
    if not sink.running:
        return _absent(status, process)
    if is_behind and sink.still_s is not None and sink.applied_s is not None:
        still_s = min(sink.still_s, sink.applied_s)
        if still_s >= _SILENT_S:
            text = f"the sink has done nothing in the replica for {still_s:.0f} s, though the topics hold more"
            return Standing("still", ((text, _look_for("sink")),), still_s)
    return Standing("running")


def _absent(status: Status, process: ProcessStatus) -> Standing:
    """Returns the state when no sink holds the sink's lock; a process may be running all the same."""
    if process.state == "answers":
        return Standing("waiting", (("the sink runs, but does not write to the replica yet", "see its log"),))
    if not status.topics.reachable and process.state != "silent":
        text = "no sink writes to the replica, and none can while Kafka does not answer"
        remedy = "fix Kafka first; a running sink then continues by itself. If none is running: cdc sink"
        return Standing("down", ((text, remedy),))
    return Standing("down", (("no sink runs", "start the sink: cdc sink"),))


def _blocked(sink: SinkStatus) -> Standing | None:
    """Returns the state of a sink that locks have kept waiting for long; None if none have.

    A table that is left out counts at once: the sink waited for some seconds before it left it out.
    """
    found = [each for each in sink.blockers if each.is_left_out or each.seconds >= LONG_S]
    if not found:
        return None
    return Standing("blocked", tuple(map(_lock, found)), max(each.seconds for each in found))


def _lock(blocker: Blocker) -> tuple[str, str]:
    if blocker.is_left_out:
        left_out = f"replica table {blocker.table} has been left out for {blocker.seconds:.0f} s, the others continue"
        return f"{left_out}: {blocker.who} keeps it locked", blocker.remedy
    what = f"replica table {blocker.table}" if blocker.table else "a row or transaction of the replica"
    return f"the sink has waited {blocker.seconds:.0f} s for {what}: {blocker.who} keeps it locked", blocker.remedy


def view_standing(status: Status) -> Standing:
    """Returns the state of the service that fills and serves the view."""
    process = process_of(status, "serve")
    known: State = "running" if process.state == "answers" else "down" if process.state == "silent" else "unknown"
    return _said_of(process) or Standing(known)


def _said_of(process: ProcessStatus) -> Standing | None:
    """Returns what is wrong with a process according to its own answer, or its lack of one; None if nothing is."""
    name = "service" if process.role == "serve" else process.role
    if process.state == "hangs":
        text = f"the {name}'s process does not answer at {process.url}: it hangs, or cannot be reached from here"
        return Standing("still", ((text, _look_for(process.role)),))
    if process.waits:
        reasons = tuple(
            (f"the {name} has waited {each.seconds:.0f} s for {each.what}", each.remedy) for each in process.waits
        )
        return Standing("waiting", reasons, max(each.seconds for each in process.waits))
    if process.error and not process.is_ready:
        return Standing(
            "retrying", ((f"the {name} keeps failing and retrying: {process.error}", process.remedy or "see its log"),)
        )
    return None


def _look_for(role: Role) -> str:
    return (
        f"ps -eo pid,stat,args | grep '{ROLES[role]}'  # T in stat means stopped: kill -CONT with its pid resumes it; "
        "otherwise see its log"
    )
