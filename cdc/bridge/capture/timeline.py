"""Finds where a promoted server left the timeline of its predecessor.

https://www.postgresql.org/docs/current/continuous-archiving.html#BACKUP-TIMELINES
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import closing
from typing import Final

from cdc.base.errors import SourceRefused
from cdc.base.lsn import LSN
from cdc.bridge.capture.copy_both import CopyBoth

_ANCESTOR: Final = re.compile(r"^\s*(\d+)\s+([0-9A-Fa-f]+/[0-9A-Fa-f]+)", re.MULTILINE)


def parse_history(content: str) -> dict[int, LSN]:
    """Returns, from a timeline history file, the position at which each ancestor was left for the next timeline."""
    return {int(timeline): LSN.parse(left) for timeline, left in _ANCESTOR.findall(content)}


def left_at(connection: Mapping[str, str], timeline: int, ancestor: int) -> LSN | None:
    """Returns the position up to which ``timeline`` holds the same WAL as ``ancestor``.

    Args:
        connection: libpq's keywords, as ``SourceConfig.connection()`` gives them.
        timeline: the server's present timeline.
        ancestor: an earlier timeline.

    Returns:
        None when ``timeline`` does not descend from ``ancestor``, or the server does not say.

    Raises:
        SourceUnavailable: the server does not answer.
    """
    with closing(CopyBoth(connection, application_name="cdc timeline")) as walsender:
        try:
            return parse_history(walsender.timeline_history(timeline)).get(ancestor)
        except SourceRefused:
            return None
