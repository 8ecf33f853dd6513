"""Options and output that the commands of ``cdc topics`` share: the cluster, the topics, progress bars, JSON.

``cdc get`` and ``cdc watch`` find their cluster in the same way.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import typer
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from cdc.base.config import Config
from cdc.base.errors import ConfigError
from cdc.cli.options import load_config
from cdc.topics.cluster import Cluster, PartitionPlace
from cdc.topics.scan import Advance, Begin

WIDTH: Final = 120
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}

TopicsArgument: TypeAlias = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[TOPIC]…", help="Topics; by default, all compacted topics of the configuration or of the cluster."
    ),
]
TopicArgument: TypeAlias = Annotated[str, typer.Argument(metavar="TOPIC", help="The name of the topic.")]
BootstrapOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--bootstrap", "-b", metavar="HOST:PORT", help="A cluster, instead of a configuration file.", show_default=False
    ),
]
ClientOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("-X", metavar="NAME=VALUE", help="With --bootstrap: a librdkafka setting; may be repeated."),
]
JsonOption: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def connection(
    config: Path | None, bootstrap: str | None, client: list[str] | None
) -> tuple[Mapping[str, Any], Config | None]:
    """Returns librdkafka's options, and the configuration; None instead of that with ``--bootstrap``.

    Raises:
        ConfigError: the file or an option is invalid.
    """
    if bootstrap is None:
        if client:
            raise ConfigError("-X needs --bootstrap", remedy="write the setting under kafka.options in the file")
        loaded = load_config(config)
        return loaded.kafka.client_options(), loaded
    pairs = [each.partition("=") for each in client or ()]
    if wrong := [name for name, equals, _ in pairs if not equals]:
        raise ConfigError(f"-X {wrong[0]} has no value", remedy=f"write -X {wrong[0]}=VALUE")
    return {**{name: value for name, _, value in pairs}, "bootstrap.servers": bootstrap}, None


def wanted(cluster: Cluster, topics: list[str] | None, config: Config | None) -> dict[str, list[PartitionPlace]]:
    """Returns the partitions of topics: of the named ones, else of all compacted ones of the configuration or cluster.

    Raises:
        ConfigError: there is no such topic.
        TopicRefused: a topic does not exist.
    """
    found = cluster.places(topics or ())
    if topics:
        return found
    if config is not None:
        found = {name: places for name, places in found.items() if _is_ours(name, config)}
    settings = cluster.settings(list(found))
    found = {name: places for name, places in found.items() if "compact" in settings[name].get("cleanup.policy", "")}
    if not found:
        whose = "" if config is None else f" of {config.name}"
        raise ConfigError(f"there is no compacted topic{whose}", remedy="name the topics")
    return found


def _is_ours(topic: str, config: Config) -> bool:
    return topic.startswith(f"{config.name}.") or topic in config.topics.names.values()


@contextmanager
def progress() -> Iterator[Begin]:
    """Show a progress bar for each partition that is read, on a terminal only; it disappears at the end."""
    console = Console(stderr=True, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as shown:
        task = shown.add_task("", total=None)

        def begin(place: PartitionPlace, steps: int) -> Advance:
            shown.reset(task, total=steps, description=f"{place.topic} {place.partition}")
            return lambda done: shown.advance(task, done)

        yield begin


def duration_ms(text: str) -> int:
    """Returns a duration such as ``90s``, ``15m``, ``36h`` or ``7d`` in milliseconds.

    Raises:
        ConfigError: the duration is invalid.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|d)", text.strip())
    if match is None:
        raise ConfigError(f"invalid duration {text!r}", remedy="write 90s, 15m, 36h or 7d")
    return int(float(match[1]) * _UNITS_MS[match[2]])


def now_ms() -> int:
    """Returns this machine's clock, which ages are computed from."""
    return time.time_ns() // 1_000_000


def show(title: str, table: RenderableType | None, lines: Iterable[str]) -> None:
    """Print a title, a table and lines below it. The lines are not wrapped, so that commands can be copied."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH
    console.print(title, markup=False, soft_wrap=True, style="bold")
    if table is not None:
        console.print(table)
    console.print("\n".join(lines), markup=False, soft_wrap=True)


def show_json(document: Mapping[str, Any]) -> None:
    """Print one JSON object, for programs."""
    typer.echo(json.dumps(document, indent=2, ensure_ascii=False))
