"""Topics for foreign readers, one for each format and compression, and who has read them in the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import pytest

from cdc.lab.stack import Kafka
from tests.readers.fed import SECTIONS, WITH_REGISTRY, Fed, ValueFormat, feed
from tests.support.deployment import deployed
from tests.support.servers import Servers, fresh_database
from tests.support.versions import DEFAULT

FeedFor = Callable[..., Fed]


@pytest.fixture(scope="module")
def feed_for(
    servers: Servers, kafka: Kafka, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FeedFor]:
    """The topic in a format; the first call makes it: ``feed_for("avro", compression="gzip")``.

    In an envelope, ``decimals`` says how numerics are written.
    """
    made: dict[tuple[str, ...], Fed] = {}
    with ExitStack() as stack:

        def topic(value_format: ValueFormat, compression: str = "", decimals: str = "") -> Fed:
            asked = (value_format, compression, decimals)
            if asked not in made:
                sections: dict[str, Mapping[str, Any]] = {**SECTIONS[value_format]}
                if value_format in WITH_REGISTRY:
                    sections["registry"] = {"url": request.getfixturevalue("registry").url}
                if compression:
                    sections["kafka"] = {"options": {"compression.type": compression}}
                if decimals:
                    sections["debezium"] = {**sections["debezium"], "decimal_handling_mode": decimals}
                server = servers.of(DEFAULT)
                source, replica = (stack.enter_context(fresh_database(server)) for _ in range(2))
                place = tmp_path_factory.mktemp("fed")
                with deployed(source, kafka.bootstrap, replica, place, sections) as deployment:
                    made[asked] = feed(deployment, value_format)
            return made[asked]

        yield topic


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Which readers ran, and which did not and why: a skipped reader is not a reader that works."""
    for outcome, words in (("passed", "read the table"), ("failed", "FAILED"), ("error", "FAILED")):
        for report in terminalreporter.stats.get(outcome, ()):
            if "test_reads_the_table[" in report.nodeid and report.when in ("call", "setup"):
                terminalreporter.write_line(f"reader {_name(report.nodeid)}: {words}")
    for report in terminalreporter.stats.get("skipped", ()):
        if "test_reads_the_table[" in report.nodeid:
            terminalreporter.write_line(f"reader {_name(report.nodeid)}: NOT RUN, {report.longrepr[2]}")


def _name(nodeid: str) -> str:
    return nodeid.partition("[")[2].rstrip("]")
