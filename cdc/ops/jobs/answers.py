"""The exit codes of the Spark commands are answers: 0 all is well, 1 something is not, 2 it is not known."""

from __future__ import annotations

import functools
import os
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, ParamSpec, TextIO

import typer

from cdc.base.daemon.logs import hidden
from cdc.base.errors import CdcError
from cdc.contract.jobspec.parent import NO_ANSWER

SOMETHING_WRONG: Final = 1
"""Exit code of a command whose job found something: a difference, an unhealthy topic."""

_P = ParamSpec("_P")


@contextmanager
def answers() -> Iterator[None]:
    """Whatever breaks in the block ends the command with 2, and never with 1, which a repair may follow."""
    try:
        yield
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise
    except (BrokenPipeError, SystemExit) as error:
        # Nobody reads our answer any more, as behind "| head". Rich makes an exit with 1 of it, which is an answer.
        if isinstance(error, BrokenPipeError) and not _is_given_up(sys.stdout):
            sys.excepthook(type(error), error, error.__traceback__)
        raise typer.Exit(NO_ANSWER) from error
    except CdcError as error:
        sys.stderr.write(hidden(f"error: {error}\n"))
        raise typer.Exit(NO_ANSWER) from error
    except Exception as error:
        sys.excepthook(type(error), error, error.__traceback__)
        raise typer.Exit(NO_ANSWER) from error


def _is_given_up(output: TextIO) -> bool:
    """Whether the other end of a pipe was closed; then nothing is written any more, at the interpreter's end either."""
    poll = select.poll()
    poll.register(output.fileno(), 0)
    if not poll.poll(0):
        return False
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, output.fileno())
    os.close(nowhere)
    return True


def answering(command: Callable[_P, None]) -> Callable[_P, None]:
    """The command, within ``answers``."""

    @functools.wraps(command)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> None:
        with answers():
            command(*args, **kwargs)

    return run
