"""What is fuzzed: each target takes any bytes, and raises an error if the product does not keep a promise about them.

The promises: bytes from a server, a topic or a client are read, or refused with the error that the function documents;
what was read says all that the bytes said; and C does what Python does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from tests.fuzz import client_bytes, source_bytes, topic_bytes


class Target(NamedTuple):
    """A function to fuzz, and inputs to begin with."""

    run: Callable[[bytes], None]
    seeds: Callable[[], Iterable[bytes]]


TARGETS: Final[Mapping[str, Target]] = {
    "pgoutput": Target(source_bytes.pgoutput, source_bytes.pgoutput_seeds),
    "frames": Target(source_bytes.frames, source_bytes.frames_seeds),
    "lines": Target(source_bytes.lines, source_bytes.lines_seeds),
    "objects": Target(source_bytes.objects, source_bytes.objects_seeds),
    "values": Target(topic_bytes.values, topic_bytes.values_seeds),
    "keys": Target(topic_bytes.record_keys, topic_bytes.key_seeds),
    "headers": Target(topic_bytes.headers, topic_bytes.header_seeds),
    "bookkeeping": Target(topic_bytes.bookkeeping, topic_bytes.bookkeeping_seeds),
    "batches": Target(topic_bytes.batch_headers, topic_bytes.batch_seeds),
    "views": Target(topic_bytes.view_records, topic_bytes.view_seeds),
    "questions": Target(client_bytes.questions, client_bytes.question_seeds),
}
