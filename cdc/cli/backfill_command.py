"""``cdc backfill``: publishes tables again while the stream continues; lists, pauses, resumes or cancels backfills."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Mapping
from typing import Annotated, Final

import typer
from rich.console import Console

from cdc.base.config import Config
from cdc.base.daemon.logs import configure
from cdc.base.errors import CdcError, ConfigError
from cdc.base.printed_commands import pasteable
from cdc.bridge.asking import allowed as asking
from cdc.bridge.asking.display import as_lines, as_table, ending_line
from cdc.bridge.asking.follow import display, follow
from cdc.bridge.asking.outcome import Following
from cdc.bridge.asking.own_bridge import OwnBridge
from cdc.cli.options import ConfigOption, LogLevelOption, load_config
from cdc.contract.naming import progress_topic
from cdc.contract.ports import Partition
from cdc.contract.record import BackfillCommand, BackfillOptions, BackfillProgress, BackfillRequest
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.publish.requests import withdraw_request
from cdc.kafka.replay.backfills import Published
from cdc.kafka.replay.bounded import partitions_of

_UNFINISHED: Final = 3
"""Exit code: a backfill failed, or was cancelled or replaced, so its topic may lack rows."""

_INTERRUPTED: Final = 130
"""Exit code after Ctrl-C, the one that shells use."""

Where = Annotated[
    str | None,
    typer.Option(help="Publish only rows that meet this SQL condition; requires TABLE.", metavar="SQL"),
]
Parallel = Annotated[
    int | None,
    typer.Option(
        help="Reading connections, if no bridge is running; a running one uses snapshot.parallel.", min=1, max=16
    ),
]


def backfill(
    tables: Annotated[
        list[str] | None, typer.Argument(metavar="TABLE", help="schema.table; all captured tables by default.")
    ] = None,
    config: ConfigOption = None,
    where: Where = None,
    rate: Annotated[
        int | None, typer.Option(help="Publish at most this many rows per second and table.", min=1)
    ] = None,
    sweep: Annotated[
        bool, typer.Option("--sweep", help="Then delete keys from the topic that the table does not have.")
    ] = False,
    parallel: Parallel = None,
    list_: Annotated[bool, typer.Option("--list", help="Show the newest backfill of each table.")] = False,
    pause: Annotated[
        bool, typer.Option("--pause", help="Stop reading until --resume, which continues at the same place.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a paused backfill.")] = False,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="End a running backfill; the topic keeps what was published.")
    ] = False,
    no_follow: Annotated[
        bool, typer.Option("--no-follow", help="Ask the running bridge, but do not wait for it.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Start again, even if that ends a running backfill.")] = False,
    log_level: LogLevelOption = "warning",
) -> None:
    """Publish tables again while the stream continues: ask the running bridge, or run one until it is done.

    If a backfill is already running, the command without options follows it. Ctrl-C ends the display, not the backfill.

    Exit code 0 when all is published, 3 when a table failed or was cancelled, 4 when a server does not answer.

    Examples:

        cdc backfill -c shop.yaml

        cdc backfill public.orders public.items --sweep

        cdc backfill public.orders --where "created_at >= '2024-01-01'" --rate 5000

        cdc backfill --list

        cdc backfill --cancel public.orders
    """
    wanted = list(tables or ())
    changes: dict[BackfillCommand, bool] = {"pause": pause, "resume": resume, "cancel": cancel}
    chosen = [name for name, is_set in changes.items() if is_set]
    is_start = not chosen and not list_
    _check_options(wanted, where, sweep, len(chosen) + list_, not is_start and (where or rate or sweep or parallel))
    loaded = load_config(config)
    configure(log_level, loaded.secrets())
    console = Console(highlight=False)
    if list_:
        _list(loaded, wanted, console)
    elif chosen:
        _change(loaded, chosen[0], wanted, no_follow=no_follow, console=console)
    else:
        options = BackfillOptions(where, rate, sweep)
        _start(loaded, wanted, options, parallel=parallel, no_follow=no_follow, yes=yes, console=console)


def _check_options(wanted: list[str], where: str | None, sweep: bool, commands: int, misplaced: object) -> None:
    if commands > 1:
        raise ConfigError("give only one of --list, --pause, --resume and --cancel", remedy="cdc backfill --help")
    if misplaced:
        raise ConfigError(
            "--where, --rate, --sweep and --parallel are for a new backfill only",
            remedy="leave them out, or leave out --list, --pause, --resume and --cancel",
        )
    if where is not None and sweep:
        raise ConfigError(
            "--sweep with --where: the sweep would delete the rows that the condition leaves out",
            remedy="leave one of them out",
        )
    if where is not None and not wanted:
        raise ConfigError("--where needs a table", remedy='cdc backfill public.orders --where "…"')


def _list(config: Config, wanted: list[str], console: Console) -> None:
    known = asking.known_backfills(config)
    backfills = [each.progress for table, each in sorted(known.backfills.items()) if table in wanted or not wanted]
    if not backfills and not known.requests:
        console.print("no backfill yet")
    elif console.is_terminal:
        console.print(as_table(backfills, known.requests))
    else:
        console.print("\n".join(as_lines(backfills, known.requests)), soft_wrap=True, markup=False)


def _change(config: Config, command: BackfillCommand, wanted: list[str], *, no_follow: bool, console: Console) -> None:
    """Pause, resume or cancel backfills, and wait until the bridge has done it."""
    meant = asking.backfills_to_change(asking.known_backfills(config), command, wanted)
    request = asking.new_change(command, list(meant))
    starts = asking.ask(config, request)
    if no_follow:
        return
    for progress in asking.wait_for_change(config, request, starts):
        console.print(ending_line(progress), soft_wrap=True, markup=False)


def _start(
    config: Config,
    wanted: list[str],
    options: BackfillOptions,
    *,
    parallel: int | None,
    no_follow: bool,
    yes: bool,
    console: Console,
) -> None:
    tables = asking.tables_to_backfill(config, wanted, options.where)
    if not no_follow:
        asking.make_bookkeeping_topics(config)
    known = asking.known_backfills(config)
    open_now = asking.open_backfills(known, tables)
    following: Following | None = None
    if open_now and not yes:
        if options != BackfillOptions() or (wanted and len(open_now) < len(wanted)):
            raise asking.refuse_to_begin_anew(open_now)
        console.print(f"already running: {', '.join(open_now)}", soft_wrap=True, markup=False)
        if no_follow:
            return
        following, starts, request = _attached(config, open_now, known)
    else:
        request = asking.new_start(tables, options)
        starts = asking.ask(config, request)
        following = Following(request.request, dict.fromkeys(tables, request.request))
    if no_follow:
        console.print(
            pasteable(f"asked for {', '.join(tables)}; see cdc backfill --list"), soft_wrap=True, markup=False
        )
        return
    _follow(config, following, starts, request, parallel, console)
    _end(following, console)


def _attached(
    config: Config, open_now: Mapping[str, BackfillProgress], known: Published
) -> tuple[Following, Mapping[Partition, int], None]:
    """Follow backfills that are already running, from their newest known record on."""
    following = Following(None, {table: each.request for table, each in open_now.items()})
    for each in open_now.values():
        following.take(each)
    partitions = partitions_of(BrokerAdmin(config.kafka.client_options()), progress_topic(config.name))
    newest = max(known.backfills[table].offset for table in open_now)
    return following, dict.fromkeys(partitions, newest), None


def _follow(
    config: Config,
    following: Following,
    starts: Mapping[Partition, int],
    request: BackfillRequest | None,
    parallel: int | None,
    console: Console,
) -> None:
    """Follow backfills to their end. After Ctrl-C or an error, the bridge that took the request continues."""
    bridge = OwnBridge(config, parallel)
    try:
        with display(console) as show, bridge:
            follow(config, following, starts, bridge, show)
    except KeyboardInterrupt:
        console.print(_farewell(following, is_ours=bridge.is_started), soft_wrap=True, markup=False)
        raise typer.Exit(_INTERRUPTED) from None
    except CdcError:
        if request is not None and not following.is_taken:
            # No bridge has taken the request. If it stayed, some later bridge would run what was given up here.
            with contextlib.suppress(CdcError):
                withdraw_request(config.kafka.client_options(), progress_topic(config.name), request.request)
        raise


def _farewell(following: Following, *, is_ours: bool) -> str:
    goes_on = "continues when a bridge runs again: cdc run" if is_ours else "continues"
    command = f"cdc backfill --cancel {shlex.join(following.tables)}"
    return pasteable(f"no longer followed; the backfill {goes_on}. To end it: {command}")


def _end(following: Following, console: Console) -> None:
    """Print the results that a terminal's live display did not keep, and set the exit code."""
    if console.is_terminal:
        for progress in following.progress.values():
            console.print(ending_line(progress), soft_wrap=True, markup=False)
    for table in sorted(following.replaced):
        console.print(f"{table}: another request replaced this one", soft_wrap=True, markup=False)
    if following.replaced or any(each.state != "done" for each in following.progress.values()):
        raise typer.Exit(_UNFINISHED)
