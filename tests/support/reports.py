"""Sample reports: what the views of a reconciliation are tested with."""

from __future__ import annotations

from cdc.spark.report.model import (
    Bar,
    ColumnDifferences,
    Counts,
    Example,
    Histograms,
    OffsetRange,
    Repair,
    ReplicaCounts,
    Report,
    Round,
    Sample,
    SkippedColumn,
    Source,
    SparkEngine,
    Stage,
    TableReport,
    Verdict,
)

SNAPSHOT = "812734:812741:812736,812739"
LSN = "0/1925728"
COLUMNS = ("id", "customer", "status", "amount", "placed_at", "note", "shipped")
EXIT_CODE: dict[Verdict, int] = {"identical": 0, "different": 1, "not_verified": 2}
HOSTILE = (
    "<script>alert('x')</script>",
    "\"'><img src=x onerror=alert(1)>&amp;",
    "abc\u202edcba\u2066x\u2069",
    "zero\x00one\x07bell\ttab\nline\r\x1b[31m",
    "\ud800 lone",
    "a" * 5_000 + "X" + "b" * 5_000,
    "</style></title>]]>--><!--",
    "",
)


def report(*tables: TableReport, **changes: object) -> Report:
    """A run over these tables; its verdict is the worst of theirs."""
    verdicts = {table.verdict for table in tables}
    verdict: Verdict = (
        "not_verified" if "not_verified" in verdicts else "different" if "different" in verdicts else "identical"
    )
    made = Report(
        run="20261121T140311Z-7f3a",
        started_at="2026-11-21T14:03:11.250000+00:00",
        ended_at="2026-11-21T14:03:49.900000+00:00",
        verdict=verdict,
        exit_code=EXIT_CODE[verdict],  # type: ignore[arg-type]  # a Literal
        source=Source(
            host="db1.shop.example",
            port=5432,
            database="shop",
            server_version="16.4",
            system_identifier="7406172390811235124",
        ),
        kafka="kafka-1:9092,kafka-2:9092",
        engine=SparkEngine(tool_version="0.1.0", spark_version="4.2.0", connector_version="4.2.0", master="local[2]"),
        redacted=False,
        stages=(
            Stage(name="start Spark", seconds=5.1),
            Stage(name="compare", seconds=30.4, rows=3_420_118),
            Stage(name="write", seconds=2.2),
        ),
        tables=tables,
    )
    return made.model_copy(update=changes)


def identical_table(name: str = "public.orders", rows: int = 1_000_000, **changes: object) -> TableReport:
    """A table whose topic holds just what the source holds."""
    made = TableReport(
        table=name,
        topic=f"shop.{name}",
        verdict="identical",
        reason="",
        snapshot=SNAPSHOT,
        lsn=LSN,
        fence_wait_s=0.21,
        lag_bytes=48_128,
        lag_s=0.34,
        passes=1,
        mode="full",
        where=None,
        key_columns=("id",),
        columns_compared=COLUMNS,
        columns_skipped=(),
        rules=(),
        offsets=tuple(
            OffsetRange(partition=number, start=0, end=rows // 4 + 1200 * number, records=rows // 4)
            for number in range(4)
        ),
        counts=Counts(
            source_rows=rows, records=rows + rows // 7, live_keys=rows, tombstones=rows // 50, identical=rows
        ),
        replica=None,
        rounds=(),
        columns=(),
        causes=(),
        histograms=Histograms(),
        samples=(),
        stages=(
            Stage(name="fence", seconds=0.21),
            Stage(name="read topic", seconds=7.9, rows=rows + rows // 7),
            Stage(name="read source", seconds=4.4, rows=rows),
            Stage(name="join", seconds=2.6),
        ),
        keys_path="",
    )
    return made.model_copy(update=changes)


def replica_of(name: str = "public.orders", rows: int = 1_000_000) -> ReplicaCounts:
    """A replica that equals the topic."""
    return ReplicaCounts(table=f"mirror.{name}", lsn="0/1925690", rows=rows, identical=rows)


def row(**changes: str | None) -> dict[str, str | None]:
    """A row of the table of orders."""
    made: dict[str, str | None] = {
        "id": "42",
        "customer": "Zoë Østergård",
        "status": "paid",
        "amount": "1999.90",
        "placed_at": "2026-11-21 11:58:03.123456+00",
        "note": None,
        "shipped": "false",
    }
    return {**made, **changes}


def sample(**changes: object) -> Sample:
    """A key whose values differ."""
    made = Sample(
        side="topic",
        difference="value_mismatch",
        key='{"id":42}',
        source=row(),
        other=row(status="open", amount="1999.9"),
        differing=("status", "amount"),
        partition=3,
        offset=118_204,
        op="u",
        lsn="0/18FF2A0",
        seq=17,
        xid=812_650,
        commit_time="2026-11-21T11:58:03.123456+00:00",
        cause="stale version: the source's row was changed by a later transaction that the topic never got",
    )
    return made.model_copy(update=changes)


def _samples() -> tuple[Sample, ...]:
    no_record = dict.fromkeys(("partition", "offset", "op", "lsn", "seq", "xid", "commit_time"))
    return (
        sample(),
        sample(
            key='{"id":77}',
            source=row(id="77", placed_at="2026-11-21 11:58:03+00", customer="Ann Lee"),
            other=row(id="77", placed_at="2026-11-21 13:58:03+00", customer="Ann Lee  "),
            differing=("customer", "placed_at"),
            cause="time-zone shift: placed_at differs by exactly 2 hours; trailing blanks in customer",
        ),
        sample(
            difference="missing_in_topic",
            key='{"id":91}',
            source=row(id="91"),
            other=None,
            differing=(),
            cause="lost insert: the topic never had a record for this key",
            **no_record,
        ),
        sample(
            difference="extra_in_topic",
            key='{"id":13}',
            source=None,
            other=row(id="13"),
            differing=(),
            op="c",
            offset=881,
            cause="missed tombstone: the source deleted the row, the topic still holds its last version",
        ),
        sample(
            side="replica",
            difference="missing_in_replica",
            key='{"id":5}',
            source=row(id="5"),
            other=None,
            differing=(),
            cause="the replica lost a row that the topic still has",
        ),
        sample(difference="in_flight", key='{"id":8}', source=row(id="8"), other=None, differing=(), cause=""),
    )


def different_table(name: str = "public.orders", **changes: object) -> TableReport:
    """A table with every class of difference, on both sides, each thing of the document filled."""
    rows = 1_000_000
    counts = Counts(
        source_rows=rows,
        records=1_184_204,
        live_keys=rows - 3,
        tombstones=20_114,
        identical=rows - 1_311,
        missing_in_topic=412,
        extra_in_topic=37,
        value_mismatch=861,
        in_flight=3,
    )
    replica = ReplicaCounts(
        table=f"mirror.{name}",
        lsn="0/1925690",
        rows=rows - 40,
        identical=rows - 52,
        missing_in_replica=41,
        extra_in_replica=1,
        value_mismatch=11,
    )
    histograms = Histograms(
        by_commit_time=tuple(
            Bar(label=f"2026-11-21 {hour:02}:00", count=number)
            for hour, number in enumerate((0, 2, 0, 1, 0, 3, 0, 0, 4, 21, 1_180, 99, 0, 0))
        ),
        by_partition=tuple(Bar(label=str(index), count=number) for index, number in enumerate((12, 9, 14, 1_275))),
        by_bucket=tuple(Bar(label=str(index), count=18 + (index * 7919) % 11) for index in range(64)),
    )
    filled = {
        "verdict": "different",
        "counts": counts,
        "replica": replica,
        "where": "region = 'eu' and id > 1000",
        "columns_skipped": (SkippedColumn(name="search", reason="generated column: not published"),),
        "rules": ("amount: trailing zeros are equal",),
        "rounds": (
            Round(number=1, snapshot=SNAPSHOT, lsn=LSN, keys=1_000_500, in_flight=119),
            Round(number=2, snapshot="812790:812790:", lsn="0/1925A10", keys=119, in_flight=3),
        ),
        "columns": _columns(),
        "causes": (
            Bar(label="stale version: a later change never reached the topic", count=803),
            Bar(label="lost insert: the topic never had a record for the key", count=412),
            Bar(label="time-zone shift by exactly 2 hours", count=58),
            Bar(label="missed tombstone: deleted in the source, alive in the topic", count=37),
        ),
        "histograms": histograms,
        "samples": _samples(),
        "keys_path": f"reconcile/20261121T140311Z-7f3a/keys/{name}",
        "repair": Repair(keys=1_310, rows=1_273, tombstones=37, touched=2, verified=1_308, still_different=2),
    }
    return identical_table(name, rows).model_copy(update={**filled, **changes})


def _columns() -> tuple[ColumnDifferences, ...]:
    return (
        ColumnDifferences(
            name="status",
            sql_type="text",
            mismatches=803,
            null_or_value=4,
            largest_difference=None,
            examples=(Example(source="paid", other="open"), Example(source="paid", other=None)),
            hint="",
        ),
        ColumnDifferences(
            name="placed_at",
            sql_type="timestamp with time zone",
            mismatches=58,
            null_or_value=0,
            largest_difference=None,
            examples=(Example(source="2026-11-21 11:58:03+00", other="2026-11-21 13:58:03+00"),),
            hint="all differ by exactly 2 hours: a time zone was applied twice",
        ),
        ColumnDifferences(
            name="amount",
            sql_type="numeric(12,2)",
            mismatches=21,
            null_or_value=0,
            largest_difference="0.07",
            examples=(Example(source="1999.90", other="1999.83"),),
            hint="precision loss: the topic's values went through a floating-point number",
        ),
    )


def unverified_table(name: str = "public.events") -> TableReport:
    """A table that could not be judged."""
    return identical_table(name, 0).model_copy(
        update={
            "verdict": "not_verified",
            "reason": "the bridge did not reach LSN 0/1925728 within 60 s; it stands at 0/1800000",
            "remedy": "start the bridge (cdc run), or give it more time (--fence-timeout 600), then compare again",
            "fence_wait_s": 60.0,
            "lag_bytes": 1_202_984,
            "lag_s": 840.0,
        }
    )


def mixed() -> Report:
    """Several tables, all verdicts."""
    return report(
        different_table(),
        unverified_table(),
        identical_table("public.customers", 52_300, replica=replica_of("public.customers", 52_300)),
        identical_table("sales.invoice_lines", 2_310_442, lag_s=1.9),
        identical_table("sales.empty", 0, offsets=()),
    )


def all_identical() -> Report:
    """What everybody wants to see."""
    return report(
        identical_table(replica=replica_of()),
        identical_table("public.customers", 52_300, lag_s=0.02),
        identical_table("sales.invoice_lines", 2_310_442, lag_s=1.9),
    )


def hostile() -> Report:
    """Values, names and causes that try to be something else than text."""
    pairs = {f"c{index} {value[:12]}": value for index, value in enumerate(HOSTILE)}
    other = {name: f"{value[:5_000]}!{value[5_000:]}" for name, value in pairs.items()}
    samples = tuple(
        sample(key=f'{{"id":"{value}"}}', source=pairs, other=other, differing=tuple(pairs), cause=value)
        for value in HOSTILE
    )
    columns = tuple(
        ColumnDifferences(
            name=value[:60] or "c",
            sql_type=value[:60],
            mismatches=1,
            null_or_value=0,
            largest_difference=None,
            examples=(Example(source=value, other=value + " "),),
            hint=value,
        )
        for value in HOSTILE
    )
    table = different_table('public."<b>t</b> & \u202eco"', samples=samples, columns=columns)
    causes = tuple(Bar(label=value or "none", count=1) for value in HOSTILE)
    histograms = Histograms(by_partition=causes, by_commit_time=causes)
    return report(table.model_copy(update={"causes": causes, "histograms": histograms, "where": HOSTILE[0]}))
