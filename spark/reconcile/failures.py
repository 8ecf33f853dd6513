"""Turns whatever goes wrong while tables are compared into errors of the job."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from cdc.base.errors import CdcError
from cdc.spark.errors import JobError


class Unverifiable(Exception):
    """Raised when no key of a table can be judged; the text says why."""


@contextlib.contextmanager
def as_job_errors() -> Iterator[None]:
    """Turns every exception in the block into a ``JobError``, so that it concerns only the tables of the block.

    The traceback of a bug of ours is printed as well.

    Raises:
        JobError: for every exception except ``Unverifiable``, which passes through.
    """
    try:
        yield
    except (JobError, Unverifiable):
        raise
    except (PySparkException, Py4JError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        told = next((line for line in lines if "Caused by" in line or "ERROR" in line), lines[0] if lines else "?")
        raise JobError(f"Spark failed: {told[:500]}", remedy="see the lines above, then try again") from error
    except CdcError as error:
        raise JobError(error.message, remedy=error.remedy or "find what wrote that record with cdc health") from error
    except OSError as error:
        place = f" {error.filename}" if error.filename else ""
        raise JobError(f"I/O error on file{place}: {error.strerror or error}", remedy="name another folder") from error
    except Exception as error:
        traceback.print_exc()
        raise JobError(f"the comparison broke off: {type(error).__name__}", remedy="report the lines above") from error
