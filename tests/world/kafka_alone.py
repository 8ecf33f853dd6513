"""Turns for one program and a cluster: while the program waits, the cluster takes its steps, in a random order."""

from __future__ import annotations

from collections.abc import Callable

from tests.world.kafka import KafkaCluster
from tests.world.turns import Alone

_STEP_S = 0.000_1


class AloneWithKafka(Alone):
    """Turns when there is one program beside a cluster.

    Attributes:
        cluster: set after both were made, because each needs the other.
    """

    cluster: KafkaCluster | None = None

    def wait(self, is_done: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Let the cluster take steps until it is done, or the time is over.

        Raises:
            AssertionError: it would wait for ever.
        """
        deadline = None if timeout_s is None else self.now + timeout_s
        while not is_done():
            if deadline is not None and self.now >= deadline:
                return False
            if self.cluster is not None and (steps := self.cluster.steps()):
                self.rng.choice(steps)()
                self.now += _STEP_S
                continue
            due_at = None if self.cluster is None else self.cluster.next_at()
            times = [at for at in (deadline, due_at) if at is not None]
            assert times, "it would wait for ever: nothing happens any more"
            self.now = max(self.now, min(times))
        return True

    def settle(self) -> None:
        """Let the cluster take all steps that are possible without time passing."""
        assert self.cluster is not None
        while steps := self.cluster.steps():
            self.rng.choice(steps)()


def kafka_alone(seed: int = 0) -> tuple[AloneWithKafka, KafkaCluster]:
    """Returns a cluster, and the turns that it takes."""
    turns = AloneWithKafka(seed)
    turns.cluster = KafkaCluster(turns, f"kafka-{seed}.world:9092")
    return turns, turns.cluster
