"""Random histories, fed to engines that stop or die between any two steps: what was committed folds to the table.

The model commits what is ready together with ``progress``, as the bridge does, and begins again from what it stored.
The source is ahead of the stream by a random lead, so a row that is read again may be newer, moved or gone.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from cdc.base.lsn import LSN
from cdc.bridge.encode import TableEncoder
from cdc.bridge.order.counts import CountsByTable
from cdc.bridge.order.engine import Engine
from cdc.bridge.order.needs import Answer, Definition, Empty, Filled, Need, Rows, Unfilled
from cdc.bridge.order.touched import TouchedKeys
from cdc.contract.change import (
    UNCHANGED_TOAST,
    Begin,
    Column,
    Commit,
    Delete,
    Insert,
    Relation,
    ReplicaIdentity,
    Truncate,
    Update,
)
from cdc.contract.header import header_position
from cdc.contract.record import Position, Progress, Ready, SourceIdentity

SOURCE = SourceIdentity("7", 1, 5)
COLUMNS = (
    Column("id", 20, -1, "pg_catalog.int8", True),
    Column("n", 20, -1, "pg_catalog.int8", False),
    Column("body", 25, -1, "pg_catalog.text", False),
)
TOPICS = ("a", "b")
Cells = tuple[bytes, bytes, bytes]
State = dict[str, dict[bytes, tuple[Cells, int]]]
"""By table and key: the row, and the xid that wrote it."""


def relation(table: str) -> Relation:
    return Relation(TOPICS.index(table) + 1, "public", table, ReplicaIdentity.DEFAULT, COLUMNS)


@dataclass
class History:
    """Transactions, and the source's state behind each of them."""

    messages: list[list[object]] = field(default_factory=list)
    states: list[State] = field(default_factory=lambda: [{name: {} for name in TOPICS}])

    @classmethod
    def made_by(cls, chance: random.Random, transactions: int) -> History:
        """A random one."""
        made = cls()
        relations = {name: relation(name) for name in TOPICS}
        for number in range(1, transactions + 1):
            state = {name: dict(rows) for name, rows in made.states[-1].items()}
            changes: list[Insert | Update | Delete | Truncate] = [
                made.change(chance, chance.choice(TOPICS), state, relations, number)
                for _ in range(chance.randint(1, 4))
            ]
            if chance.random() < 0.08:
                for name in TOPICS:
                    state[name].clear()
                changes.append(Truncate(tuple(relations.values()), False, False))
            if chance.random() < 0.1:  # described anew
                relations = {name: relation(name) for name in TOPICS}
            lsn = LSN(number * 100)
            made.messages.append([Begin(lsn, number, number), *changes, Commit(lsn, LSN(lsn + 10), number)])
            made.states.append(state)
        return made

    @staticmethod
    def change(
        chance: random.Random, name: str, state: State, relations: dict[str, Relation], xid: int
    ) -> Insert | Update | Delete:
        """One row change, made to the state as well."""
        rows, described = state[name], relations[name]
        free = [b"%d" % key for key in range(8) if b"%d" % key not in rows]
        if not rows or (free and chance.random() < 0.25):
            key = chance.choice(free)
            row = (key, b"0", b"%d" % chance.randrange(1_000))
            rows[key] = row, xid
            return Insert(described, row)
        key = chance.choice(list(rows))
        before, _ = rows.pop(key)
        if chance.random() < 0.2:
            return Delete(described, (key, None, None), False)
        keeps = chance.random() < 0.7
        moved = chance.choice(free) if free and chance.random() < 0.3 else key
        after = (moved, b"%d" % chance.randrange(1_000), before[2] if keeps else b"%d" % chance.randrange(1_000))
        rows[moved] = after, xid
        old = None if moved == key else (key, None, None)
        return Update(described, old, False, (*after[:2], UNCHANGED_TOAST if keeps else after[2]))


def reach(progress: Progress) -> tuple[LSN, int]:
    """What can be compared; nothing of a transaction is the same as none of it."""
    return progress.lsn, 0 if progress.partial is None else progress.partial.seq


class Died(Exception):
    """The process."""


class Model:
    """A topic, a stored progress, and a process that dies now and then."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.history = History.made_by(self.chance, 25)
        self.stored = Progress(LSN(50), None, 0, SOURCE)
        self.committed: list[Ready] = []
        self.pending: list[Ready] = []
        self.lead = 0
        self.deaths = 12
        self.engine = self.new_engine()

    def new_engine(self) -> Engine:
        self.pending.clear()
        return Engine(resume=self.stored, xid=1, counts=CountsByTable(), touched=TouchedKeys())

    def step(self, transaction: int) -> None:
        """Between any two steps: nothing, a commit, or the end, with a last commit or without."""
        what = self.chance.random()
        if what < 0.15:
            self.commit()
        elif what < 0.2 and self.deaths:
            self.deaths -= 1
            if what < 0.17:
                self.commit()
            raise Died
        self.lead = max(self.lead, transaction + self.chance.choice((0, 0, 0, 1, 3)))

    def take(self) -> None:
        self.pending += self.engine.take()

    def commit(self) -> None:
        """What is ready and the progress, or neither."""
        self.take()
        progress = self.engine.progress()
        assert reach(progress) >= reach(self.stored), "progress never goes back"
        self.committed += self.pending
        self.pending.clear()
        self.stored = progress

    def live(self) -> dict[tuple[str, bytes], bytes]:
        folded: dict[tuple[str, bytes], bytes] = {}
        for topic, key, value, _, _ in self.committed:
            if value is None:
                folded.pop((topic, key), None)
            else:
                folded[topic, key] = value
        return folded

    def answer(self, need: Need | None, transaction: int) -> None:
        while need is not None:
            self.take()
            self.step(transaction)
            match need:
                case Definition(described):
                    need = self.engine.table(TableEncoder(described, ("id",), described.name))
                case Rows(table, rows):
                    asked = self.chance.randint(1, len(rows))
                    need = self.engine.rows(
                        [self.found(table, row, xid) for row, xid in list(zip(rows, need.xids, strict=True))[:asked]]
                    )
                case Empty(table, header):
                    self.commit()
                    for topic, key in self.live():
                        if topic == table.topic:
                            self.pending.append((topic, key, None, header, None))
                            self.step(transaction)
                    need = self.engine.emptied()

    def found(self, table: TableEncoder, row: tuple[object, ...], xid: int) -> Answer:
        """As the source has it by now."""
        now = self.history.states[min(self.lead, len(self.history.states) - 1)][table.topic]
        found = now.get(row[0])  # type: ignore[call-overload]  # cells of this table are bytes
        if found is None:
            return Unfilled.GONE
        (_, _, body), writer = found
        return Filled((row[0], row[1], body), writer != xid)  # type: ignore[arg-type]  # cells of this table are bytes

    def run(self) -> None:
        """Until everything is published."""
        while True:
            try:
                self.stream()
                return
            except Died:
                self.engine = self.new_engine()

    def stream(self) -> None:
        engine = self.engine
        for number, messages in enumerate(self.history.messages, 1):
            self.lead = max(self.lead, number)
            for message in messages:
                match message:
                    case Begin():
                        engine.begin(message)
                    case Commit():
                        engine.commit(message)
                    case Insert():
                        self.answer(engine.insert(message), number)
                    case Update():
                        self.answer(engine.update(message), number)
                    case Delete():
                        self.answer(engine.delete(message), number)
                    case Truncate():
                        self.answer(engine.truncate(message), number)
                self.step(number)
            if self.chance.random() < 0.3:
                self.answer(engine.settle(), number)
        self.answer(engine.settle(), len(self.history.messages))
        self.commit()


@pytest.mark.parametrize("seed", range(120))
def test_what_was_committed_folds_to_the_table_and_nothing_came_twice_or_late(seed: int) -> None:
    model = Model(seed)
    model.run()
    final = model.history.states[-1]
    expected = {
        (name, b'{"id":%b}' % key): b'{"id":%b,"n":%b,"body":"%b"}' % row
        for name, rows in final.items()
        for key, (row, _) in rows.items()
    }
    assert model.live() == expected
    assert model.stored == Progress(LSN(2_510), None, 25, SOURCE, model.stored.unseen)
    positions: dict[str, Position] = {}
    seen: set[tuple[str, bytes, bool, Position]] = set()
    for topic, key, value, header, _ in model.committed:
        position = header_position(header)
        assert position >= positions.get(topic, position), "behind a later one"
        positions[topic] = position
        assert (topic, key, value is None, position) not in seen, "twice"
        seen.add((topic, key, value is None, position))
