"""A program that turns into a server: it drops root, asks to die with its parent, and then executes the server.

Call it as ``python -IS launcher.py DEATH_SIGNAL PARENT_PID UID GID COMMAND…``. With -1 as UID it keeps the account, and
with 0 as DEATH_SIGNAL the server outlives its parent. It is a program of its own because ``preexec_fn`` is unsafe in a
process with threads, and the Kafka client has many.
"""

from __future__ import annotations

import ctypes
import os
import sys

_PR_SET_PDEATHSIG = 1  # prctl(2)


def main(arguments: list[str]) -> None:
    """Become the command; never returns."""
    death_signal, parent, uid, gid = (int(argument) for argument in arguments[:4])
    command = arguments[4:]
    if uid >= 0:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    # This must follow setuid, because a change of account clears the setting.
    if death_signal and sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
        if os.getppid() != parent:
            raise SystemExit("the process that started this server is gone")  # it died before prctl took effect
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
