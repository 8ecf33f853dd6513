"""``cdc stack``: starts a PostgreSQL, a Kafka, and what else is wanted to try things on, with nothing to install."""

from __future__ import annotations

import contextlib
import signal
from typing import Annotated, Literal, cast

import typer

from cdc.base import extras
from cdc.base.errors import StackError

stack_app = typer.Typer(
    help="Start a PostgreSQL, a Kafka and more to try things on: yours by URL, in Docker, or embedded.",
    no_args_is_help=True,
)

BackendName = Literal["auto", "docker", "embedded"]
BackendOption = Annotated[
    BackendName,
    typer.Option(
        help="Where the servers come from; auto: CDC_PG_URL, CDC_KAFKA, CDC_REDIS_URL and CDC_REGISTRY_URL, else "
        "Docker, else embedded."
    ),
]


@stack_app.command()
def up(
    backend: BackendOption = "auto",
    pg: Annotated[Literal["14", "15", "16", "17", "18"], typer.Option(help="PostgreSQL version.")] = "16",
    redis: Annotated[bool, typer.Option("--redis", help="Start a Redis as well, for views.")] = False,
    registry: Annotated[
        bool, typer.Option("--registry", help="Start a schema registry as well, for topics in Avro.")
    ] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Leave the servers running until: cdc stack down")] = False,
) -> None:
    """Start the servers and print how to reach them; Ctrl-C stops and removes them.

    The first start downloads Kafka (45 MB) and, if you ask for them, PostgreSQL 14, 15 or 17 (15 MB each), Redis
    (11 MB) and Apicurio Registry (158 MB). The data lie in a temporary directory.

    Examples:

        cdc stack up

        cdc stack up --pg 18 --backend embedded

        cdc stack up --redis --registry

        eval "$(cdc stack up --detach)"     # sets CDC_PG_URL and CDC_KAFKA in this shell
    """
    extras.require("embedded", "cdc stack")
    from cdc.lab.stack import PostgresMajor, open_stack
    from cdc.lab.stack.running import running

    standing = [entry for entry in running() if entry.detached and entry.is_alive()]
    if detach and standing:
        raise StackError(
            "a detached stack is already running: " + ", ".join(f"{entry.server} at {entry.url}" for entry in standing),
            remedy="cdc stack down",
        )
    # SIGTERM must remove the servers, as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt):
        major = cast(PostgresMajor, int(pg))
        stack = open_stack(
            backend=backend, major=major, with_redis=redis, with_registry=registry, detached=detach, say=_tell
        )
        typer.echo(f"export CDC_PG_URL='{stack.postgres.dsn()}'\nexport CDC_KAFKA='{stack.kafka.bootstrap}'")
        if stack.redis is not None:
            typer.echo(f"export CDC_REDIS_URL='{stack.redis.url}'")
        if stack.registry is not None:
            typer.echo(f"export CDC_REGISTRY_URL='{stack.registry.url}'")
        if detach:
            _tell("the servers keep running; stop them with: cdc stack down")
            return
        with stack:
            _tell("ready; copy the lines above into another shell. Ctrl-C stops and removes the servers.")
            while True:
                signal.pause()


@stack_app.command()
def down() -> None:
    """Stop the servers that "cdc stack up --detach" left running, and remove their data.

    Example:

        cdc stack down
    """
    extras.require("embedded", "cdc stack")
    from cdc.lab.stack.running import stop_detached, sweep

    stopped = [*stop_detached(), *sweep()]
    for entry in stopped:
        _tell(f"stopped {entry.server} at {entry.url}")
    if not stopped:
        _tell("nothing was running")


@stack_app.command()
def status(backend: BackendOption = "auto") -> None:
    """Show which servers would be started and why, which programs they use, and which servers are running now.

    Example:

        cdc stack status
    """
    extras.require("embedded", "cdc stack")
    from cdc.lab.stack import probe
    from cdc.lab.stack.running import running, sweep

    for entry in sweep():
        typer.echo(f"removed: {entry.server} at {entry.url}, whose owner is gone")
    for choice in probe(backend=backend):
        typer.echo(str(choice))
    for title, found in _materials():
        typer.echo(f"{title}: {found}")
    alive = [entry for entry in running() if entry.is_alive()]
    for entry in alive:
        place = f"container {entry.container[:12]}" if entry.container else f"process {entry.pid}"
        owner = "detached" if entry.detached else "of a running command"
        typer.echo(f"running: {entry.server} at {entry.url}, {place}, {owner}, data in {entry.directory}")
    if not alive:
        typer.echo("running: nothing")


def _materials() -> list[tuple[str, str]]:
    """Returns the programs that embedded servers use, or why one was not found."""
    from cdc.lab.stack.account import unprivileged
    from cdc.lab.stack.binaries import materials
    from cdc.lab.stack.cache import cache_dir
    from cdc.lab.stack.jars import kafka_home
    from cdc.lab.stack.java import find_java
    from cdc.lab.stack.redis_server import redis_version

    try:
        java = find_java()
        found = f"Java {java.major} from {java.origin}, {java.executable}"
    except StackError as error:
        found = error.message
    accounts = ", else ".join(account.name for account in unprivileged()) or "none possible"
    home = kafka_home()
    return [
        ("Java for Kafka", found),
        ("PostgreSQL binaries", f"{materials()}; run as {accounts}"),
        ("Kafka jars", f"in {home}" if home.exists() else "not downloaded yet (45 MB at the first start)"),
        ("Redis", redis_version()),
        ("cache", str(cache_dir())),
    ]


def _tell(line: str) -> None:
    """Print a line for the person to standard error, so that ``eval`` does not see it."""
    typer.echo(f"# {line}", err=True)
