"""What a job and the command that started it agree on: the job ends with its command, and a crash is no answer."""

from __future__ import annotations

from typing import Final

PARENT_VARIABLE: Final = "CDC_JOB_PARENT"
"""Environment variable with the process id of the command; without it a job is on its own (``spark-submit``)."""

FOUND: Final = 10
"""Exit code of a job that found something wrong. Not 1, which Python itself ends with when it breaks."""

NO_ANSWER: Final = 2
"""Exit code of a job that could not give its answer, whatever kept it from it."""
