"""The exit codes of commands that answer: a reader that went away must not read as "something differs"."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from cdc.contract.jobspec.parent import NO_ANSWER

PRELUDE = """
import sys, typer
from rich.console import Console
from cdc.ops.jobs.answers import answering
app = typer.Typer()
"""
WAYS = {
    "echo": "typer.echo('x' * 1_000_000)",
    "rich": "Console().print('x')",
    "json": "typer.echo('x'); typer.echo('y')",
}


@pytest.mark.parametrize("way", WAYS)
def test_nobody_reads_the_answer(way: str) -> None:
    script = f"{PRELUDE}\n@app.command()\n@answering\ndef run(): {WAYS[way]}; raise typer.Exit(1)\napp()"
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([sys.executable, "-c", script], stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (NO_ANSWER, b"")


def test_another_broken_pipe_is_ours_to_mend() -> None:
    script = f"{PRELUDE}\n@app.command()\n@answering\ndef run(): raise BrokenPipeError(32, 'Broken pipe')\napp()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert done.returncode == NO_ANSWER
    assert b"BrokenPipeError" in done.stderr
