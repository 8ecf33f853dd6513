"""Exit codes of the Spark commands. Each is an answer: 0 all is well, 1 something is wrong, 2 nobody knows."""

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
"""Exit code of a command whose job found something, such as a difference or an unhealthy topic."""

_P = ParamSpec("_P")


@contextmanager
def answers() -> Iterator[None]:
    """End the command with 2 if anything in the block fails, and never with 1: a script may start a repair after 1."""
    try:
        yield
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise
    except (BrokenPipeError, SystemExit) as error:
        # The reader of our output is gone, as with "| head". Rich turns that into an exit with 1, an answer.
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
    """Whether the reader of a pipe is gone. If so, point the output at /dev/null, or Python complains when it exits."""
    poll = select.poll()
    poll.register(output.fileno(), 0)
    if not poll.poll(0):
        return False
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, output.fileno())
    os.close(nowhere)
    return True


def answering(command: Callable[_P, None]) -> Callable[_P, None]:
    """Decorator that runs a command within ``answers``."""

    @functools.wraps(command)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> None:
        with answers():
            command(*args, **kwargs)

    return run
