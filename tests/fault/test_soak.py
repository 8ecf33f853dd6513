"""A minute of the soak, so that it works when somebody needs an hour of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.long, pytest.mark.pg(16, matrix=False), pytest.mark.timeout(1800)]


def test_a_minute_of_load_and_faults_ends_with_figures_and_no_difference() -> None:
    options = ("--minutes", "1", "--profile", "small", "--check-every", "30", "--fault", "bridge killed")
    command = [sys.executable, "-m", "tests.soak", *options]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ), check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "all sides were the same" in said
    load = re.findall(r"^ +small +([0-9,]+) ", said, re.MULTILINE)
    assert int(load[0].replace(",", "")) > 0, said
    (kills,) = re.findall(r"^ +bridge killed +(\d+) +(\d+) ", said, re.MULTILINE)
    assert kills[0] == kills[1] > "0", said
