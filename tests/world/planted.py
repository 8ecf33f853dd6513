"""Plants known defects, one at a time, and counts the worlds until one shows it: ``python -m tests.world.planted``.

Each is a mend that was once made, taken back, or a guard that the code's comments call necessary. A copy of the product
gets the defect; the worlds run in Python alone, because a defect may be in a module that has a twin in C.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

_ROOT: Final = Path(__file__).resolve().parents[2]


class Planted(NamedTuple):
    """A defect: what it does, the module that gets it, and the text that is replaced there."""

    what: str
    module: str
    right: str
    wrong: str


DEFECTS: Final = (
    Planted(
        "the slot is confirmed before Kafka has the rows",
        "bridge/loop.py",
        "        self._kafka.commit(progress)\n",
        "        self._stream.confirm(progress.lsn)\n        self._kafka.commit(progress)\n",
    ),
    Planted(
        "a backfill writes rows that a TRUNCATE has deleted",
        "bridge/backfill/rows.py",
        "or backfill.recording.is_emptied(view.snapshot)",
        "or False",
    ),
    Planted(
        "a chunk may be older than what was streamed before it",
        "bridge/order/touched.py",
        "self.guard = frozenset(unseen)",
        "self.guard = frozenset()",
    ),
    Planted(
        "a new slot's backfill overlooks commits that are not visible yet",
        "bridge/backfill/start.py",
        'self._sql.execute("SELECT pg_catalog.pg_current_xact_id()")',
        "pass",
    ),
    Planted(
        "a row is read again before its transaction is visible",
        "bridge/rereader.py",
        "self._find(self._sql, columns, xids)",
        "self._find(self._sql, columns, xids[:0])",
    ),
    Planted(
        "a relation is looked up before its transaction is visible",
        "bridge/source_side.py",
        "        if not self.snapshot().sees(need.xid):\n            return None\n",
        "",
    ),
    Planted(
        "a bridge that was fenced while it has the slot ends",
        "bridge/session.py",
        "self._fencings.met(error) if self._has_slot() else _taken_over(error)",
        "error if self._has_slot() else _taken_over(error)",
    ),
    Planted(
        "a slot that is lost during the start ends the bridge",
        "bridge/session.py",
        "            if not config.heals_gaps:\n                raise\n",
        "            raise\n",
    ),
    Planted(
        "a slot that is lost before the first progress is not made anew",
        "bridge/resume.py",
        "if slot is not None and slot.lost else []",
        "if False else []",
    ),
    Planted(
        "a topic that is deleted while a repair begins ends the bridge",
        "bridge/session.py",
        "        except TopicMissing as error:",
        "        except ZeroDivisionError as error:",
    ),
    Planted(
        "the sink forgets how the bridge knows a topic until it has the definition",
        "sink/apply/topics.py",
        "            self._noted.add(topic)\n            return\n",
        "            del self._published[topic]\n            return\n",
    ),
    Planted(
        "the sink takes the last stable offset for a fence",
        "kafka/replay/reader.py",
        "each: end - 1 if end and end == stable[each] and (marked is None or each[0] in marked) else end",
        "each: stable[each]",
    ),
    Planted(
        "the sink believes that no tombstone can be missing",
        "kafka/replay/horizon.py",
        "return mark is not None and now - mark.at < self._lag_s - MARGIN_S",
        "return True",
    ),
    Planted(
        "a partition's second record may follow the first before Kafka has it",
        "kafka/publish/first_records.py",
        "        if place in self._under_way:\n            return True\n",
        "        if place in self._under_way:\n            return False\n",
    ),
    Planted(
        "keys of late rows are not published again",
        "bridge/session.py",
        "self._publisher.late:\n",
        "False:\n",
    ),
    Planted(
        "who takes over does not wait for rows of the former bridge",
        "bridge/resume.py",
        "            stop.wait(GRACE_S)",
        "            stop.wait(0)",
    ),
    Planted(
        "a transaction begins although the end of the last one may still be on its way",
        "kafka/publish/transaction_end.py",
        "self.is_repeated = True",
        "self.is_repeated = False",
    ),
    Planted(
        "a clock that was set back proves that a cut is true",
        "sink/apply/cut_judge.py",
        "if self._clock.was_set_back:",
        "if False:",
    ),
)


def worlds_until_found(planted: Planted, most: int) -> tuple[int | None, str]:
    """Returns how many worlds it took, and what was broken; None if none of so many worlds showed it."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        shutil.copytree(_ROOT / "cdc", copy / "cdc", symlinks=False, ignore=shutil.ignore_patterns("__pycache__"))
        (copy / "tests").symlink_to(_ROOT / "tests")
        path = copy / "cdc" / planted.module
        text = path.read_text()
        assert text.count(planted.right) == 1, f"{planted.module} has this {text.count(planted.right)} times"
        path.write_text(text.replace(planted.right, planted.wrong))
        command = [sys.executable, "-m", "tests.world", "--first", "0", "--worlds", str(most), "--no-shrink"]
        environment = {**os.environ, "PYTHONPATH": folder, "PYTHONHASHSEED": "0", "CDC_PURE_PYTHON": "1"}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    found = re.search(r"^seed (\d+), step \d+: (.*)", done.stdout, re.MULTILINE)
    assert found or done.returncode == 0, done.stdout + done.stderr
    return (int(found[1]) + 1, found[2]) if found else (None, "")


def main() -> int:
    """Print a line for each defect; returns 1 if one was not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.world.planted", description=__doc__)
    parser.add_argument("--worlds", type=int, default=3_000, help="at most so many each (default: %(default)s)")
    most, missed = parser.parse_args().worlds, 0
    for planted in DEFECTS:
        count, said = worlds_until_found(planted, most)
        missed += count is None
        sys.stdout.write(f"{'not in ' + str(most) if count is None else count:>12}  {planted.what}  [{said[:90]}]\n")
        sys.stdout.flush()
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
