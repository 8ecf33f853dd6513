"""The settings of a broker's cleaner, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """The settings of a broker's cleaner, with Kafka's defaults.

    Attributes:
        enabled: log.cleaner.enable.
        threads: log.cleaner.threads.
        buffer_bytes: log.cleaner.dedupe.buffer.size, for all threads together.
        load_factor: log.cleaner.io.buffer.load.factor.
        io_bytes_per_s: log.cleaner.io.max.bytes.per.second.
        backoff_ms: log.cleaner.backoff.ms.
        transaction_max_ms: transaction.max.timeout.ms.
        file_delete_delay_ms: log.segment.delete.delay.ms.
        is_known: the broker told us its settings; when False, they are defaults.
    """

    enabled: bool = True
    threads: int = 1
    buffer_bytes: int = 134_217_728
    load_factor: float = 0.9
    io_bytes_per_s: float = float("inf")
    backoff_ms: int = 15_000
    transaction_max_ms: int = 900_000
    file_delete_delay_ms: int = 60_000
    is_known: bool = False


def cleaner_settings(found: Mapping[str, str]) -> CleanerSettings:
    """Reads the settings from the answer to DescribeConfigs for a broker."""
    default = CleanerSettings()
    io_bytes_per_s = float(found.get("log.cleaner.io.max.bytes.per.second") or "inf")
    return CleanerSettings(
        enabled=found.get("log.cleaner.enable", "true") != "false",
        threads=int(found.get("log.cleaner.threads") or default.threads),
        buffer_bytes=int(found.get("log.cleaner.dedupe.buffer.size") or default.buffer_bytes),
        load_factor=float(found.get("log.cleaner.io.buffer.load.factor") or default.load_factor),
        # Kafka's default, which does not throttle, is the largest double
        io_bytes_per_s=io_bytes_per_s if io_bytes_per_s < 1e300 else float("inf"),
        backoff_ms=int(found.get("log.cleaner.backoff.ms") or default.backoff_ms),
        transaction_max_ms=int(found.get("transaction.max.timeout.ms") or default.transaction_max_ms),
        file_delete_delay_ms=int(found.get("log.segment.delete.delay.ms") or default.file_delete_delay_ms),
        is_known=True,
    )
