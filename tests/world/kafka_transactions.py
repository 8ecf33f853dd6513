"""What the transaction coordinator promises a producer: KIP-98, KIP-360, and the first part of KIP-890."""

from __future__ import annotations

from confluent_kafka import KafkaError


class Refused(Exception):
    """Carries the code with which a broker refuses a request."""

    def __init__(self, code: int) -> None:
        self.code = code
        super().__init__(code)


class TransactionalId:
    """What the transaction coordinator knows of a transactional id (KIP-98).

    Attributes:
        producer_id, epoch: of the newest producer; whoever has an older epoch is fenced.
        state: "empty", "ongoing", or "commit" or "abort" while markers are missing.
        places: partitions of the transaction, or those that lack their marker.
        began_at: when the transaction began.
        timeout_s: how long a transaction may be open.
    """

    __slots__ = ("began_at", "epoch", "places", "producer_id", "state", "timeout_s")

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = -1
        self.state = "empty"
        self.places: dict[tuple[str, int], None] = {}
        self.began_at = 0.0
        self.timeout_s = 60.0

    def decide(self, *, is_commit: bool) -> None:
        """Decide the transaction. From now on nothing changes its outcome; markers follow, partition by partition."""
        self.state = ("commit" if is_commit else "abort") if self.places else "empty"


class TransactionSession:
    """A producer's side of its transactional id: the epoch that ``init_transactions`` gave it.

    Attributes:
        coordinated: what the coordinator knows.
        epoch: ours; -1 before the first ``init_transactions``.
        added: partitions that the coordinator has taken into our open transaction.
    """

    __slots__ = ("added", "coordinated", "epoch")

    def __init__(self, coordinated: TransactionalId) -> None:
        self.coordinated = coordinated
        self.epoch = -1
        self.added: set[tuple[str, int]] = set()

    @property
    def is_fenced(self) -> bool:
        """Whether a newer producer has taken over, or the transaction timed out."""
        return self.epoch != self.coordinated.epoch

    @property
    def is_ready(self) -> bool:
        """Whether the coordinator answers now; it does not before all markers of the last transaction are written."""
        return self.is_fenced or self.coordinated.state in {"empty", "ongoing"}

    def may_write(self, place: tuple[str, int]) -> bool:
        """Whether the partition is part of our open transaction."""
        known = self.coordinated
        return not self.is_fenced and known.state == "ongoing" and place in known.places

    def add(self, place: tuple[str, int], now: float) -> None:
        """Make a partition part of the transaction, which the first one begins (AddPartitionsToTxn); asked once each.

        Raises:
            Refused: we are fenced.
        """
        known = self.coordinated
        if place in self.added:
            return
        if self.is_fenced:
            raise Refused(KafkaError.PRODUCER_FENCED)
        if known.state == "empty":
            known.state, known.began_at = "ongoing", now
        known.places[place] = None
        self.added.add(place)

    def init(self, timeout_s: float) -> bool:
        """Take over: abort what is open, wait for its markers, and get a new epoch. Returns whether it is done."""
        known = self.coordinated
        if known.state == "ongoing":
            known.epoch += 1
            known.decide(is_commit=False)
        if known.state != "empty":
            return False
        known.epoch += 1
        known.timeout_s = timeout_s
        self.epoch = known.epoch
        return True

    def end(self, *, is_commit: bool) -> None:
        """Decide our open transaction (EndTxn).

        Raises:
            Refused: we are fenced.
        """
        if self.is_fenced:
            raise Refused(KafkaError.PRODUCER_FENCED)
        self.coordinated.decide(is_commit=is_commit)

    def commit_late(self, epoch: int) -> bool:
        """Let a request to commit arrive that was sent before; returns whether a transaction was open.

        The coordinator cannot tell which transaction of the epoch is meant: it commits the one that is open now.
        """
        if self.coordinated.epoch != epoch or self.coordinated.state != "ongoing":
            return False
        self.coordinated.decide(is_commit=True)
        return True
