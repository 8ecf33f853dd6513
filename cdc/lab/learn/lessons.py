"""The lessons by name, in the order in which to take them. Each is imported when it runs."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Final, NamedTuple

from cdc.lab.learn.classroom import Classroom


class Lesson(NamedTuple):
    """One lesson: a module of this package with a function ``teach``.

    Attributes:
        question: the question that the lesson answers, as ``cdc learn`` lists it.
        module: the module's name.
    """

    question: str
    module: str

    def teach(self, room: Classroom) -> None:
        """Run the lesson.

        Raises:
            NotSeen: the lesson did not see what it says.
        """
        importlib.import_module(f"cdc.lab.learn.{self.module}").teach(room)


LESSONS: Final[Mapping[str, Lesson]] = {
    "compaction": Lesson("which of eight records stay, and where?", "compaction"),
    "log": Lesson("what are segment, head, tail and pass?", "log"),
    "tombstones": Lesson("what becomes of a delete, and who misses it?", "tombstones"),
    "rebuild": Lesson("how do you get state back from offset 0?", "rebuild"),
    "keys": Lesson("where do keys go, and what if you add partitions?", "keys"),
    "composite": Lesson("why is a-b-c a bad key for two columns?", "composite"),
    "schemas": Lesson("what do readers see when columns come and go?", "schemas"),
    "standard": Lesson("what does compaction cost and save?", "standard"),
}
