"""Adds a run's certificate to the file that chains them. A crash leaves the file as it was, or with the whole line."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cdc.base.crashpoints import reach
from cdc.contract.jobspec.certificate import (
    CertifiedFold,
    CertifiedRound,
    CertifiedTable,
    RunCertificate,
    line_hash,
    read_chain,
)
from cdc.contract.jobspec.reconcile import ReconcileJob
from cdc.spark.errors import JobError
from cdc.spark.report.model import Report, TableReport


class CertificateFile:
    """A file of certificates that this run has to itself.

    Args:
        path: the file, which need not exist yet.
        lines: how many certificates it holds.
        last_hash: the hash of the last of them.
    """

    def __init__(self, path: Path, lines: int, last_hash: str) -> None:
        self._path = path
        self._lines = lines
        self._last_hash = last_hash

    def add(self, certificate: RunCertificate) -> None:
        """Adds a line, in one step.

        Raises:
            JobError: the file cannot be written.
        """
        line = certificate.model_copy(update={"previous": self._last_hash}).model_dump_json()
        unfinished = self._path.with_name(f".{self._path.name}.unfinished")
        try:
            if self._path.exists():
                shutil.copy(self._path, unfinished)
            else:
                unfinished.write_bytes(b"")
            with unfinished.open("ab") as file:
                file.write(line.encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
            reach("reconcile.before_certificate")
            unfinished.replace(self._path)
            _sync(self._path.parent)
        except OSError as error:
            raise _unwritable(self._path, error) from error
        told = line_hash(line.encode())
        sys.stderr.write(f"certificate: line {self._lines + 1} of {self._path}, SHA-256 {told}\n")


@contextmanager
def certificate_file(path: str | None) -> Iterator[CertificateFile | None]:
    """Occupies the file for the duration of the block; yields None without one.

    Raises:
        JobError: the file cannot be written, another run uses it, or a line of it does not follow the one before.
    """
    if path is None:
        yield None
        return
    place = Path(path)
    try:
        # A file of its own: the one with the certificates is replaced.
        lock = os.open(place.with_name(f".{place.name}.lock"), os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise _unwritable(place, error) from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise JobError(
                f"another run adds a certificate to {place}", remedy="wait for it, or name another file"
            ) from error
        yield _opened(place)
    finally:
        os.close(lock)


def certificate_of(
    job: ReconcileJob, report: Report, timeline: int, folds: Sequence[CertifiedFold | None]
) -> RunCertificate | None:
    """Returns the certificate of a run; None if it proves too little, which is said on standard error.

    Args:
        job: the run.
        report: its report, with keys and values or without.
        timeline: the source's timeline.
        folds: the states of the topics, in the order of the report's tables.
    """
    tables = []
    for table, fold in zip(report.tables, folds, strict=True):
        if why := _why_not(table, fold):
            sys.stderr.write(f"no certificate: {table.table} {why}\n")
            return None
        assert fold is not None
        tables.append(_table(table, fold))
    assert report.verdict != "not_verified"
    return RunCertificate(
        previous="",
        run=job.run,
        tool_version=job.tool_version,
        began=report.started_at,
        ended=report.ended_at,
        name=job.stream.name,
        slot=job.stream.slot,
        system_identifier=report.source.system_identifier,
        timeline=timeline,
        database=report.source.database,
        verdict=report.verdict,
        tables=tuple(tables),
    )


def _why_not(table: TableReport, fold: CertifiedFold | None) -> str:
    if table.verdict == "not_verified" or fold is None:
        return "is not verified"
    # What is foreign is judged by what the source says now, and the digests by the headers alone. They disagree over
    # the tombstone of another program, of a transaction that the source does not have.
    if table.verdict == "identical" and len(table.rounds) == 1 and fold.rows != table.counts.source_rows:
        return (
            f"has {table.counts.source_rows:,} rows, but by their headers {fold.rows:,} records of the topic are its"
            " state: another program has written there; see which with cdc topics lint"
        )
    return ""


def _table(table: TableReport, fold: CertifiedFold) -> CertifiedTable:
    assert table.verdict != "not_verified"
    return CertifiedTable(
        table=table.table,
        topic=table.topic,
        verdict=table.verdict,
        rows=fold.rows,
        source_rows=table.counts.source_rows,
        differences=table.counts.differences,
        replica_differences=None if table.replica is None else table.replica.differences,
        rounds=tuple(CertifiedRound(each.snapshot, each.lsn, each.keys) for each in table.rounds),
        fold=fold,
    )


def _opened(path: Path) -> CertificateFile:
    try:
        chain = read_chain(path)
    except FileNotFoundError:
        return CertificateFile(path, 0, "")
    except OSError as error:
        raise _unwritable(path, error) from error
    if chain.fault and path.stat().st_size:
        raise JobError(
            f"{path}: {chain.fault}", remedy="keep the file as it is, and begin another one: --certificate FILE"
        )
    return CertificateFile(path, chain.lines, chain.last_hash)


def _unwritable(path: Path, error: OSError) -> JobError:
    return JobError(f"cannot write {path}: {error.strerror}", remedy="name a file in a folder that can be written to")


def _sync(folder: Path) -> None:
    """Makes the new name survive a crash of the machine."""
    place = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(place)
    finally:
        os.close(place)
