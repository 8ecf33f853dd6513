"""What goes wrong while tables are compared, told as errors of the job."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from cdc.base.errors import CdcError
from cdc.spark.errors import JobError


class Unverifiable(Exception):
    """Why no key of a table can be judged."""


@contextlib.contextmanager
def as_job_errors() -> Iterator[None]:
    """What breaks in the block is a matter of the tables that it is about; a bug of ours is shown, too.

    Raises:
        JobError: whatever broke, but for ``Unverifiable``.
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
        raise JobError(error.message, remedy=error.remedy or "see what wrote that record (cdc health)") from error
    except OSError as error:
        place = f" {error.filename}" if error.filename else ""
        raise JobError(f"a file{place} failed: {error.strerror or error}", remedy="name another folder") from error
    except Exception as error:
        traceback.print_exc()
        raise JobError(f"the comparison broke off: {type(error).__name__}", remedy="report the lines above") from error
