"""What digests prove after compaction: equal rows, other rows, or nothing. And which runs are certified."""

from __future__ import annotations

import pytest

from cdc.contract.jobspec.certificate import Bucket, CertifiedFold, as_digest
from cdc.spark.certify.certificate import certificate_of
from cdc.spark.certify.verify import BucketAnswers, FoundBucket, answers_of
from cdc.spark.report.model import Counts, Round
from tests.support.reports import different_table, identical_table, report, unverified_table
from tests.unit.spark.reconcile.test_run import job

A, B = as_digest(1), as_digest(2)
EQUAL = BucketAnswers()


@pytest.mark.parametrize(
    ("now", "traceless", "expected"),
    [
        (FoundBucket(5, A, 0), False, EQUAL),
        (FoundBucket(5, A, 3), True, EQUAL),  # written again, and not cleaned yet
        (FoundBucket(5, B, 0), False, BucketAnswers(different=(1,))),
        (FoundBucket(5, B, 9), True, BucketAnswers(different=(1,))),  # none is missing, so none was removed
        (FoundBucket(6, B, 9), True, BucketAnswers(different=(1,))),  # compaction adds none
        (FoundBucket(3, B, 2), False, BucketAnswers(unknown=(1,), missing=2)),
        (FoundBucket(3, B, 1), False, BucketAnswers(different=(1,))),  # one row is gone, and nobody wrote its key
        (FoundBucket(3, B, 1), True, BucketAnswers(unknown=(1,), missing=2)),
        (None, True, BucketAnswers(unknown=(1,), missing=5)),
        (None, False, BucketAnswers(different=(1,))),
    ],
)
def test_a_bucket(now: FoundBucket | None, traceless: bool, expected: BucketAnswers) -> None:
    found = {} if now is None else {1: now}
    assert answers_of([Bucket(1, 5, A)], found, traceless=traceless) == expected


def test_buckets_that_were_empty_and_several_at_once() -> None:
    # A key that was first written later has no row of then, and no bucket.
    assert answers_of([], {2: FoundBucket(0, as_digest(0), 4)}, traceless=False) == EQUAL
    assert answers_of([], {2: FoundBucket(1, A, 4)}, traceless=True).different == (2,)
    certified = [Bucket(number, 2, A) for number in range(4)]
    found = {
        0: FoundBucket(2, A, 0),
        1: FoundBucket(1, B, 1),
        2: FoundBucket(0, as_digest(0), 2),
        3: FoundBucket(2, B, 0),
    }
    assert answers_of(certified, found, traceless=False) == BucketAnswers((3,), (1, 2), 3)
    # The run may have read an older record of a key that was in flight.
    assert answers_of(certified, found, traceless=False, in_flight=1) == BucketAnswers((), (1, 2, 3), 3)
    found[0] = FoundBucket(2, B, 0)
    assert answers_of(certified, found, traceless=False, in_flight=1) == BucketAnswers((0, 3), (1, 2), 3)


FOLD = CertifiedFold(
    topic_id="AAA", offsets=((0, 4),), snapshot="7:7:", lsn="0/1", definitions=(), buckets=(Bucket(3, 2, A),)
)
ROUND = Round(number=0, snapshot="7:7:", lsn="0/1", keys=0, in_flight=0)
EQUAL_TABLE = identical_table(counts=Counts(source_rows=2, live_keys=2, identical=2), rounds=(ROUND,))


def test_a_run_is_certified_if_each_table_has_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    found = certificate_of(job(), report(EQUAL_TABLE, different_table()), 3, [FOLD, FOLD])
    assert found is not None
    assert (found.verdict, found.timeline, found.database, found.name) == ("different", 3, "shop", "t")
    assert [(each.verdict, each.rows) for each in found.tables] == [("identical", 2), ("different", 2)]
    assert certificate_of(job(), report(EQUAL_TABLE, unverified_table()), 3, [FOLD, FOLD]) is None
    assert certificate_of(job(), report(EQUAL_TABLE), 3, [None]) is None
    assert capsys.readouterr().err.count("no certificate: public.") == 2


def test_rows_that_only_headers_hide_are_not_certified(capsys: pytest.CaptureFixture[str]) -> None:
    fewer = EQUAL_TABLE.model_copy(update={"counts": Counts(source_rows=1, live_keys=1, identical=1)})
    assert certificate_of(job(), report(fewer), 3, [FOLD]) is None
    assert "another program has written there" in capsys.readouterr().err
    # A key in flight is settled at a later snapshot, where the table may have another number of rows.
    later = fewer.model_copy(update={"rounds": (ROUND, ROUND)})
    assert certificate_of(job(), report(later), 3, [FOLD]) is not None
