"""The processes of a deployment, as far as their ports tell of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from cdc.config import Config
from cdc.dashboard.numbers import Numbers, Sample, numbers, of_url

Role: TypeAlias = Literal["bridge", "sink", "serve"]

_ANYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}
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
    wanted: list[Role] = ["bridge"]
    wanted += ["sink"] if config.sink is not None else []
    wanted += ["serve"] if config.view is not None else []
    return [_ask(config, role, own) for role in wanted]


def together(processes: Iterable[Process]) -> Numbers:
    """The numbers of all of them."""
    return numbers(sample for each in processes for sample in each.samples if not sample[0].startswith("process_"))


def _ask(config: Config, role: Role, own: Own | None) -> Process:
    if own is not None and own.role == role:
        return Process(role, "here", "this process", list(own.read()))
    url = _url(config, role)
    if url is None:
        return Process(role, "unasked", f"{_OPTIONS[role]} names no port to ask")
    try:
        return Process(role, "answers", url, of_url(url))
    except OSError as error:
        if getattr(error, "code", None) in (401, 403):
            return Process(role, "unasked", f"{url} asks for a token")
        return Process(role, "silent", f"{url} does not answer")


def _url(config: Config, role: Role) -> str | None:
    host, port = config.http.host, config.http.bridge_port if role == "bridge" else config.http.sink_port
    scheme = "http"
    if role == "serve":
        host, port = config.serve.host, config.serve.port
        scheme = "https" if config.serve.tls_cert else "http"
    if not port or scheme == "https":
        return None
    host = _ANYWHERE.get(host, f"[{host}]" if ":" in host else host)
    return f"{scheme}://{host}:{port}/metrics"
