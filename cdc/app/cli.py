"""The command line: parse, load the configuration, call. No logic here.

Exit codes: 0 done; 1 our own bug; 2 the configuration is wrong; 3 the operator must change something in PostgreSQL or
Kafka; 4 a server could not be reached; 5 another process took over.
"""

from __future__ import annotations

import os
import sys

import typer

from cdc import crashpoints
from cdc.app.backfill.command import backfill
from cdc.app.check_command import check
from cdc.app.config_command import config_app
from cdc.app.demo.command import demo
from cdc.app.grants_command import grants_app
from cdc.app.history.command import history
from cdc.app.jobs.audit_command import audit
from cdc.app.jobs.health_command import health
from cdc.app.jobs.mirror_command import mirror
from cdc.app.jobs.reconcile_command import reconcile
from cdc.app.jobs.snapshot_command import snapshot
from cdc.app.logs import configure, guard_tracebacks, hidden
from cdc.app.options import ConfigOption, LogLevelOption, load_config
from cdc.app.run import run_bridge
from cdc.app.sink_run import run_sink
from cdc.app.stack_command import stack_app
from cdc.app.status_command import status
from cdc.app.supervise import hangups, stop_on_signals
from cdc.app.tables_command import tables_app
from cdc.errors import CdcError

app = typer.Typer(
    name="cdc",
    help="Change data capture from PostgreSQL to compacted Kafka topics, mirrored and proven.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.add_typer(config_app, name="config")
app.add_typer(grants_app, name="grants")
app.add_typer(stack_app, name="stack")
app.add_typer(tables_app, name="tables")
app.command("check")(check)
app.command("status")(status)
app.command("backfill")(backfill)
app.command("history")(history)
app.command("reconcile")(reconcile)
app.command("health")(health)
app.command("mirror")(mirror)
app.command("snapshot")(snapshot)
app.command("audit")(audit)
app.command("demo")(demo)


@app.command("run")
def run(config: ConfigOption = None, log_level: LogLevelOption = "info") -> None:
    """Run the bridge: PostgreSQL's row changes to compacted topics, until SIGTERM or Ctrl-C.

    SIGHUP reads the file again: source.tables, source.exclude, source.keys and topics.names may change that way.

    Examples:

        cdc run -c shop.yaml

        CDC_SOURCE__PASSWORD=… cdc run -c shop.yaml --log-level debug
    """
    loaded = load_config(config)
    configure(log_level, loaded.secrets())
    run_bridge(loaded, stop_on_signals(), hangups(), lambda: load_config(config))


@app.command("sink")
def sink(config: ConfigOption = None, log_level: LogLevelOption = "info") -> None:
    """Run the sink: compacted topics to replica tables, one consistent cut after another, until SIGTERM or Ctrl-C.

    Examples:

        cdc sink -c shop.yaml

        CDC_SINK__PASSWORD=… cdc sink -c shop.yaml
    """
    loaded = load_config(config)
    configure(log_level, loaded.secrets())
    run_sink(loaded, stop_on_signals())


def main() -> None:
    """Entry point: runs the command and turns errors into their exit codes."""
    if point := os.environ.get("CDC_CRASHPOINT"):
        crashpoints.arm(point)
    guard_tracebacks()
    try:
        app()
    except CdcError as error:
        sys.stderr.write(hidden(f"error: {error}\n"))
        sys.exit(error.exit_code)
