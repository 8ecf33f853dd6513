"""A process and its descendants, any of which may end between being listed and being asked."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterable

import psutil


def family(pid: int) -> list[psutil.Process]:
    """The process, then its descendants."""
    parent = psutil.Process(pid)
    return [parent, *parent.children(recursive=True)]


def send(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    """Signal those that are still there."""
    for each in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.send_signal(number)


def arguments(process: psutil.Process) -> list[str]:
    """Its command line; empty for one that has ended."""
    try:
        return list(process.cmdline())
    except psutil.NoSuchProcess:
        return []


def status(pid: int) -> str:
    """As psutil names it; ``dead`` for one that is gone."""
    try:
        return str(psutil.Process(pid).status())
    except psutil.NoSuchProcess:
        return str(psutil.STATUS_DEAD)
