"""The lessons, by name, in the order in which they are best taken. Each is imported when it is run."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Final, NamedTuple

from cdc.lab.learn.classroom import Classroom


class Lesson(NamedTuple):
    """A module of this room with a function ``teach``.

    Attributes:
        question: what it answers, for the list.
        module: its name.
    """

    question: str
    module: str

    def teach(self, room: Classroom) -> None:
        """Run it.

        Raises:
            NotSeen: it did not see what it says.
        """
        importlib.import_module(f"cdc.lab.learn.{self.module}").teach(room)


LESSONS: Final[Mapping[str, Lesson]] = {
    "compaction": Lesson("what stays of eight records, and where", "compaction"),
    "log": Lesson("what is a segment, the head, the tail, a pass?", "log"),
    "tombstones": Lesson("what becomes of a delete, and who misses it?", "tombstones"),
    "rebuild": Lesson("how does state come back from offset zero?", "rebuild"),
    "keys": Lesson("where do keys lie, and what do more partitions do?", "keys"),
    "composite": Lesson("why is a-b-c no key of two columns?", "composite"),
    "schemas": Lesson("what do readers see when columns come and go?", "schemas"),
    "standard": Lesson("what does compaction cost and save?", "standard"),
}
