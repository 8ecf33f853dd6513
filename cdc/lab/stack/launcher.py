"""A program of its own that turns into a server: sheds root, binds its life to its parent's, then executes it.

Called as ``python -IS launcher.py DEATH_SIGNAL PARENT_PID UID GID COMMAND…``; -1 as UID keeps the account and 0 as
DEATH_SIGNAL lets the server outlive its parent. It stands alone because Python's own hook between fork and exec is
unsafe in a process with threads, and the Kafka client has many.
"""

from __future__ import annotations

import ctypes
import os
import sys

_PR_SET_PDEATHSIG = 1  # prctl(2)


def main(arguments: list[str]) -> None:
    """Become the command; returns only by an exception."""
    death_signal, parent, uid, gid = (int(argument) for argument in arguments[:4])
    command = arguments[4:]
    if uid >= 0:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    # After setuid: a change of account clears the setting.
    if death_signal and sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
        if os.getppid() != parent:
            raise SystemExit("the process that wanted this server is gone")
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
