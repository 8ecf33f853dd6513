"""``python -m cdc.spark KIND [FILE]``: run one job, described by the JSON document in FILE or on standard input.

Exit codes: 0 done, and nothing differs; 1 differences were found; 2 the job could not give its answer.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from cdc.spark.errors import JobError
from cdc.spark.parent import end_with_parent

JOBS: Final[Mapping[str, str]] = {
    "reconcile": "cdc.spark.reconcile.main",
    "snapshot": "cdc.spark.snapshot.main",
    "audit": "cdc.spark.history.main",
    "health": "cdc.spark.health.main",
    "mirror": "cdc.spark.mirror.main",
}
"""By kind, the module whose ``main`` takes the document and returns the exit code."""

NOT_VERIFIED: Final = 2


def main(arguments: Sequence[str]) -> int:
    """Run the job that the command line names."""
    if not arguments or arguments[0] not in JOBS or len(arguments) > 2:
        sys.stderr.write(f"usage: python -m cdc.spark {{{','.join(JOBS)}}} [FILE]\n")
        return NOT_VERIFIED
    end_with_parent()
    document = Path(arguments[1]).read_text(encoding="utf-8") if len(arguments) == 2 else sys.stdin.read()
    try:
        code: int = importlib.import_module(JOBS[arguments[0]]).main(document)
    except JobError as error:
        sys.stderr.write(f"error: {error}\n")
        return NOT_VERIFIED
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
