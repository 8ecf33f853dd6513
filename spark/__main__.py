"""``python -m cdc.spark KIND [FILE]``: run one job, described by the JSON document in FILE or on standard input.

Exit codes: 0 done, and nothing is wrong; 10 something is (``cdc reconcile`` and ``cdc health`` make 1 of it); 2 the job
could not give its answer. Whatever breaks is 2 or what the operating system makes of it, never 10: a crash must not
read as "different", for a repair may follow.
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

from cdc.base.errors import CdcError
from cdc.contract.jobspec.parent import FOUND, NO_ANSWER, PARENT_VARIABLE
from cdc.spark.errors import JobError

_LOOK_S: Final = 1.0
_GRACE_S: Final = 10.0


def end_with_parent() -> None:
    """From now on, end this process when its parent is not the command any more; the JVM ends with it.

    Else a killed command would leave a snapshot open that holds VACUUM.
    """
    command = os.environ.get(PARENT_VARIABLE)
    if command is not None:
        threading.Thread(target=_watch, args=(int(command),), name="parent", daemon=True).start()


def _watch(command: int) -> None:
    while os.getppid() == command:
        threading.Event().wait(_LOOK_S)
    # First as anybody would ask it to end, so that it can tidy up.
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(_GRACE_S)
    os._exit(NO_ANSWER)


JOBS: Final[Mapping[str, str]] = {
    "reconcile": "cdc.spark.reconcile.main",
    "snapshot": "cdc.spark.snapshot.main",
    "audit": "cdc.spark.history.main",
    "health": "cdc.spark.health.main",
    "mirror": "cdc.spark.mirror.main",
}
"""By kind, the module whose ``main`` takes the document and returns 0, 1 for something wrong, or 2 for no answer."""

_CODES: Final[Mapping[int, int]] = {0: 0, 1: FOUND}


def main(arguments: Sequence[str]) -> int:
    """Run the job that the command line names."""
    if not arguments or arguments[0] not in JOBS or len(arguments) > 2:
        sys.stderr.write(f"usage: python -m cdc.spark {{{','.join(JOBS)}}} [FILE]\n")
        return NO_ANSWER
    end_with_parent()
    try:
        document = Path(arguments[1]).read_text(encoding="utf-8") if len(arguments) == 2 else sys.stdin.read()
        code: int = importlib.import_module(JOBS[arguments[0]]).main(document)
        # Here and not at the interpreter's end, where a reader that went away would give a code of Python's own.
        sys.stdout.flush()
    except ValidationError as error:
        # Its text quotes the document, which holds passwords.
        wrong = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        sys.stderr.write(f"error: the job's description is wrong: {wrong}\n")
        return NO_ANSWER
    except (JobError, CdcError) as error:
        sys.stderr.write(f"error: {error}\n")
        return NO_ANSWER
    except Exception as error:  # noqa: BLE001  whatever it is, it must not look like an answer
        traceback.print_exc()
        sys.stderr.write(
            f"error: the job broke off ({type(error).__name__}), so it has no answer; report the lines above\n"
        )
        return NO_ANSWER
    return _CODES.get(code, NO_ANSWER)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
