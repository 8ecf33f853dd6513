"""The entry point of the command line: the general options, and the exit codes. The commands are in ``commands.py``.

Exit codes: 0 done; 1 an internal error; 2 the configuration is wrong; 3 the operator must change something in
PostgreSQL or Kafka, or give more memory; 4 a server could not be reached; 5 another process took over; 130 Ctrl-C. The
Spark commands have exit codes of their own (``ops/jobs/answers.py``).
"""

from __future__ import annotations

import os
import sys
from typing import Annotated, Final

import typer

from cdc import __version__
from cdc.base import compiled, crashpoints, interrupts
from cdc.base.errors import CdcError, with_remedy
from cdc.cli import output
from cdc.cli.commands import COMMANDS, Commands

_MORE_MEMORY: Final = (
    "raise its limits of memory and of threads, and start it again: nothing is lost. How much it needs is in "
    "docs/operations.md, under Sizing"
)

app = typer.Typer(
    name="cdc",
    cls=Commands,
    help="Change data capture from PostgreSQL to compacted Kafka topics, mirrored and proven.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cdc {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Options that are written before a command."""


def _listed() -> None:
    """Stands in the list for a command that is not imported yet; ``Commands`` never calls it."""


for _name, _command in COMMANDS.items():
    app.command(_name, help=_command.summary, rich_help_panel=_command.group)(_listed)


def _lacks_memory(error: BaseException | None) -> bool:
    """Whether there was no memory: libraries in C report that in an error of their own, with ours as its cause."""
    while error is not None:
        # A thread needs memory for its stack, and Python has no type for this error
        if isinstance(error, MemoryError) or str(error) == "can't start new thread":
            return True
        error = error.__cause__ or error.__context__
    return False


def main() -> None:
    """Run the command, and turn errors into exit codes."""
    output.escape_what_cannot_be_shown()
    if point := os.environ.get("CDC_CRASHPOINT"):
        crashpoints.arm(point)
    if os.environ.get("CDC_PURE_PYTHON"):
        compiled.avoid()
    try:
        app()
    except CdcError as error:
        from cdc.base.daemon.logs import hidden  # costs nothing here: the command that raised has imported it
        from cdc.base.printed_commands import pasteable

        sys.stderr.write(hidden(f"error: {pasteable(str(error))}\n"))
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(interrupts.EXIT_CODE)
    except Exception as error:
        if not _lacks_memory(error):
            raise
        sys.stderr.write(
            with_remedy("error: this process gets no more memory, or no more threads", _MORE_MEMORY) + "\n"
        )
        sys.exit(3)
    finally:
        interrupts.end_at_once()
