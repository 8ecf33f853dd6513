"""Which PostgreSQL versions a test runs on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast, get_args

import pytest

from cdc.lab.stack import PostgresMajor

DEFAULT: Final = 16
SUPPORTED: Final[tuple[PostgresMajor, ...]] = get_args(PostgresMajor)


def parse_majors(text: str) -> list[PostgresMajor]:
    """``14,15`` as versions.

    Raises:
        ValueError: not a list of supported versions; argparse shows that as a wrong option.
    """
    wanted = [int(part) for part in text.split(",")]
    if unknown := set(wanted) - set(SUPPORTED):
        raise ValueError(f"not supported: {unknown}")
    return cast(list[PostgresMajor], wanted)


def versions_for(mark: pytest.Mark | None, matrix: Sequence[PostgresMajor]) -> list[PostgresMajor]:
    """The versions of one test.

    Args:
        mark: ``pg(*versions, since=…, matrix=…)`` or None. The versions are those of an ordinary run (16 when there
            is no mark); ``since`` is the first version that has what the test is about; ``matrix=False`` keeps the
            ordinary versions in a matrix too, for tests that have their own reason for a version, or none.
        matrix: the versions of ``--pg-majors``, empty in an ordinary run.
    """
    arguments, options = (mark.args, mark.kwargs) if mark else ((), {})
    ordinary = list(arguments or (DEFAULT,))
    if not matrix or not options.get("matrix", True):
        return ordinary
    return [major for major in matrix if major >= options.get("since", SUPPORTED[0])]
