"""One broker for all tests of the toolkit: its cleaner looks often, has little memory, and says what it did."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cdc.lab.stack import KafkaBroker

ONE_MIB = 1_048_576


@pytest.fixture(scope="session")
def cleaning() -> Iterator[KafkaBroker]:
    """Its cleaner's map holds 39,321 keys: the least that Kafka allows."""
    settings = {"log.cleaner.dedupe.buffer.size": str(ONE_MIB + 1), "log.cleaner.backoff.ms": "100"}
    with KafkaBroker.open(settings=settings, heap_mb=512, quick_start=True) as broker:
        yield broker
