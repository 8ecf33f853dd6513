"""The processes of a deployment, as their HTTP ports show them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal, NamedTuple

from cdc.base.config import Config
from cdc.ops.dashboard.numbers import Numbers, Sample, numbers, of_url
from cdc.ops.status.processes import Role, roles_of, url_of

_OPTIONS: Final[dict[Role, str]] = {"bridge": "http.bridge_port", "sink": "http.sink_port", "serve": "serve.port"}


class Own(NamedTuple):
    """This process: its role, and how to read its metrics without HTTP."""

    role: Role
    read: Callable[[], Iterable[Sample]]


class Process(NamedTuple):
    """One process of the deployment.

    Attributes:
        state: here: this process; answers; silent: its port does not answer; unasked: it cannot be asked.
        text: the URL that was asked, or why none was.
    """

    role: Role
    state: Literal["here", "answers", "silent", "unasked"]
    text: str
    samples: Sequence[Sample] = ()

    def document(self) -> dict[str, Any]:
        """Returns plain values, for JSON."""
        found = numbers(self.samples).single
        memory, cpu = found.get("process_resident_memory_bytes"), found.get("process_cpu_seconds_total")
        return {"role": self.role, "state": self.state, "text": self.text, "memory_bytes": memory, "cpu_s": cpu}


def ask_each(config: Config, own: Own | None) -> list[Process]:
    """Read the metrics of every process: of this one directly, of the others through their ports."""
    return [_ask(config, role, own) for role in roles_of(config)]


def together(processes: Iterable[Process]) -> Numbers:
    """Returns the numbers of all processes together."""
    return numbers(sample for each in processes for sample in each.samples if not sample[0].startswith("process_"))


def _ask(config: Config, role: Role, own: Own | None) -> Process:
    if own is not None and own.role == role:
        return Process(role, "here", "this process", list(own.read()))
    address = url_of(config, role)
    if address is None:
        return Process(role, "unasked", f"{_OPTIONS[role]} names no port that could be asked")
    url = f"{address}/metrics"
    try:
        return Process(role, "answers", url, of_url(url))
    except OSError as error:
        if getattr(error, "code", None) in (401, 403):
            return Process(role, "unasked", f"{url} asks for a token")
        return Process(role, "silent", f"{url} does not answer")
