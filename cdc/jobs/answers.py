"""The exit codes of the Spark commands are answers: 0 all is well, 1 something is not, 2 it is not known."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, ParamSpec

import typer

from cdc.daemon.logs import hidden
from cdc.errors import CdcError
from cdc.jobspec.parent import NO_ANSWER

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
    except CdcError as error:
        sys.stderr.write(hidden(f"error: {error}\n"))
        raise typer.Exit(NO_ANSWER) from error
    except Exception as error:
        sys.excepthook(type(error), error, error.__traceback__)
        raise typer.Exit(NO_ANSWER) from error


def answering(command: Callable[_P, None]) -> Callable[_P, None]:
    """The command, within ``answers``."""

    @functools.wraps(command)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> None:
        with answers():
            command(*args, **kwargs)

    return run
