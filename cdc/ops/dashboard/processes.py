"""The processes of a deployment, as far as their ports tell of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal, NamedTuple

from cdc.base.config import Config
from cdc.ops.dashboard.numbers import Numbers, Sample, numbers, of_url
from cdc.ops.status.processes import Role, roles_of, url_of

_OPTIONS: Final[dict[Role, str]] = {"bridge": "http.bridge_port", "sink": "http.sink_port", "serve": "serve.port"}


class Own(NamedTuple):
    """The process that this is."""

    role: Role
    read: Callable[[], Iterable[Sample]]


class Process(NamedTuple):
    """One process.

    Attributes:
        state: here; answers; silent: its port does not answer; unasked: nobody can ask it.
        text: where it was asked, or why not.
    """

    role: Role
    state: Literal["here", "answers", "silent", "unasked"]
    text: str
    samples: Sequence[Sample] = ()

    def document(self) -> dict[str, Any]:
        """Plain values."""
        found = numbers(self.samples).single
        memory, cpu = found.get("process_resident_memory_bytes"), found.get("process_cpu_seconds_total")
        return {"role": self.role, "state": self.state, "text": self.text, "memory_bytes": memory, "cpu_s": cpu}


def ask_each(config: Config, own: Own | None) -> list[Process]:
    """This process from within, the others at their ports."""
    return [_ask(config, role, own) for role in roles_of(config)]


def together(processes: Iterable[Process]) -> Numbers:
    """The numbers of all of them."""
    return numbers(sample for each in processes for sample in each.samples if not sample[0].startswith("process_"))


def _ask(config: Config, role: Role, own: Own | None) -> Process:
    if own is not None and own.role == role:
        return Process(role, "here", "this process", list(own.read()))
    address = url_of(config, role)
    if address is None:
        return Process(role, "unasked", f"{_OPTIONS[role]} names no port to ask")
    url = f"{address}/metrics"
    try:
        return Process(role, "answers", url, of_url(url))
    except OSError as error:
        if getattr(error, "code", None) in (401, 403):
            return Process(role, "unasked", f"{url} asks for a token")
        return Process(role, "silent", f"{url} does not answer")
