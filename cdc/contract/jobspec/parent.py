"""What a job and the command that started it agree on: the job ends with its command, and a crash is not an answer."""

from __future__ import annotations

from typing import Final

PARENT_VARIABLE: Final = "CDC_JOB_PARENT"
"""Environment variable with the command's process id; without it, a job runs by itself (``spark-submit``)."""

FOUND: Final = 10
"""Exit code of a job that found something wrong. Not 1, because Python itself exits with 1 when it crashes."""

NO_ANSWER: Final = 2
"""Exit code of a job that could not give an answer, for whatever reason."""
