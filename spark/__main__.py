"""``python -m cdc.spark KIND [FILE]``: runs one job, described by the JSON document in FILE or on standard input.

Exit codes: 0 if the job is done and nothing is wrong; 10 if something is (``cdc reconcile`` and ``cdc health`` turn it
into 1); 2 if the job could not give an answer. A job that breaks ends with 2, or with what the operating system makes
of it, but never with 10: a crash must not look like "different", because a repair may follow.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from cdc.base import crashpoints
from cdc.base.errors import CdcError
from cdc.contract.jobspec.parent import FOUND, NO_ANSWER, PARENT_VARIABLE
from cdc.spark.errors import JobError

_LOOK_S: Final = 1.0
_GRACE_S: Final = 10.0


def end_with_parent() -> None:
    """Makes this process, and its JVM, end when the command that started it is gone.

    Otherwise a killed command would leave a snapshot open, which holds back VACUUM.
    """
    command = os.environ.get(PARENT_VARIABLE)
    if command is not None:
        threading.Thread(target=_watch, args=(int(command),), name="parent", daemon=True).start()


def _watch(command: int) -> None:
    while os.getppid() == command:
        threading.Event().wait(_LOOK_S)
    # SIGTERM first, so that the job can clean up.
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(_GRACE_S)
    # The main thread may wait for the JVM and never see the signal.
    os._exit(NO_ANSWER)


JOBS: Final[Mapping[str, str]] = {
    "reconcile": "cdc.spark.reconcile.main",
    "verify": "cdc.spark.certify.verify",
    "snapshot": "cdc.spark.snapshot.main",
    "audit": "cdc.spark.history.main",
    "health": "cdc.spark.health.main",
    "mirror": "cdc.spark.mirror.main",
}
"""The module of each kind of job. Its ``main`` takes the document; it returns 0, 1 if something is wrong, or 2 if it
has no answer."""

_CODES: Final[Mapping[int, int]] = {0: 0, 1: FOUND}


def main(arguments: Sequence[str]) -> int:
    """Runs the job that the command line names, and returns the exit code."""
    if not arguments or arguments[0] not in JOBS or len(arguments) > 2:
        sys.stderr.write(f"usage: python -m cdc.spark {{{','.join(JOBS)}}} [FILE]\n")
        return NO_ANSWER
    end_with_parent()
    if point := os.environ.get("CDC_CRASHPOINT"):
        crashpoints.arm(point)
    try:
        document = Path(arguments[1]).read_text(encoding="utf-8") if len(arguments) == 2 else sys.stdin.read()
        code: int = importlib.import_module(JOBS[arguments[0]]).main(document)
        # Flush here: if the reader of the output is gone, a flush at Python's end would set an exit code of its own.
        sys.stdout.flush()
    except ValidationError as error:
        # Do not print the error itself: it quotes the document, which holds passwords.
        wrong = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        sys.stderr.write(f"error: invalid description of the job: {wrong}\n")
        return NO_ANSWER
    except (JobError, CdcError) as error:
        sys.stderr.write(f"error: {error}\n")
        return NO_ANSWER
    except Exception as error:  # noqa: BLE001  no failure may look like an answer
        traceback.print_exc()
        sys.stderr.write(
            f"error: the job failed with {type(error).__name__} and has no answer; report the lines above\n"
        )
        return NO_ANSWER
    return _CODES.get(code, NO_ANSWER)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
