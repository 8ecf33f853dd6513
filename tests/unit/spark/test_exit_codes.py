"""A crash is no answer: whatever breaks at whatever stage, the exit code is 2, never the 1 that starts a repair."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import socket
import threading
import types
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NoReturn

import psutil
import psycopg
import pytest
import typer
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkRuntimeError
from typer.testing import CliRunner

import cdc.spark.__main__ as entry
from cdc.base.errors import DecodeError, SourceUnavailable
from cdc.cli import cli, commands, reconcile_command
from cdc.contract.jobspec.deployment import JobColumn, JobTable, KafkaSettings, PostgresSettings, SparkSettings, Stream
from cdc.contract.jobspec.parent import FOUND
from cdc.contract.jobspec.reconcile import ReconcileJob
from cdc.ops.jobs.answers import answering
from cdc.ops.jobs.launch import INTERRUPTED, document, run_job
from cdc.spark.errors import JobError
from cdc.spark.reconcile import main as job_main
from cdc.spark.reconcile import table_report
from cdc.spark.reconcile.comparison import Stopwatch
from cdc.spark.reconcile.replica_run import ComparedReplica
from cdc.spark.reconcile.table_run import Compared
from cdc.spark.report.document import from_json
from cdc.spark.report.model import Counts, ReplicaCounts, Round, Source
from cdc.spark.session import refuse_silent_master
from tests.support.process_tree import arguments

KINDS = tuple(entry.JOBS)
BREAKAGES: tuple[BaseException, ...] = (
    OSError(28, "No space left on device"),
    PermissionError(13, "Permission denied", "/kept"),
    MemoryError(),
    KeyError("column"),
    RuntimeError("can't start new thread"),
    Py4JNetworkError("the JVM is gone"),
    PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={}),
    psycopg.OperationalError("server closed the connection unexpectedly"),
    DecodeError("not a snapshot"),
    JobError("a server failed", remedy="mend it"),
)
TABLE = JobTable(
    namespace="public",
    name="client",
    topic="t.public.client",
    key=("id",),
    columns=(JobColumn(name="id", sql_type="int4", kind="number"),),
    replica=("public", "client"),
)


def raising(error: BaseException) -> Callable[..., NoReturn]:
    def raise_it(*_: object, **__: object) -> NoReturn:
        raise error

    return raise_it


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("error", BREAKAGES, ids=lambda error: type(error).__name__)
def test_any_job_that_breaks(kind: str, error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib, "import_module", lambda _: types.SimpleNamespace(main=raising(error)))
    described = tmp_path / "job.json"
    described.write_text("{}", encoding="utf-8")
    assert entry.main([kind, str(described)]) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_description_that_is_wrong(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main([kind, str(tmp_path / "none.json")]) == 2
    described = tmp_path / "job.json"
    described.write_text('{"kafka": {"options": {}, "password": "hidden-word", "more": 1}}', encoding="utf-8")
    assert entry.main([kind, str(described)]) == 2
    assert "hidden-word" not in capsys.readouterr().err


def test_what_a_job_says_is_told_from_what_python_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    described = tmp_path / "job.json"
    described.write_text("{}", encoding="utf-8")
    codes = {}
    for code in (0, 1, 2, 3, -9):
        monkeypatch.setattr(importlib, "import_module", lambda _, code=code: types.SimpleNamespace(main=lambda _: code))
        codes[code] = entry.main(["health", str(described)])
    assert codes == {0: 0, 1: FOUND, 2: 2, 3: 2, -9: 2}


class Broken(contextlib.AbstractContextManager[None]):
    """A session that does not come up."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __enter__(self) -> None:
        raise self._error

    def __exit__(self, *_: object) -> None: ...


class Bridge:
    """Stands for what the bridge says of itself, as far as a run without differences asks."""

    system_identifier = "7"
    may_be_late = False

    def __init__(self, *_: object) -> None: ...
    def catch_up(self) -> None: ...
    def close(self) -> None: ...


class Brokers:
    """Stands for the cluster, likewise."""

    def __init__(self, *_: object) -> None: ...
    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        return {topic: f"id of {topic}" for topic in topics}

    def close(self) -> None: ...


STAGES: dict[str, tuple[Any, Callable[[], Any]]] = {
    "timeline_of": (
        job_main,
        lambda: job_main.SourceTimeline(
            Source(host="h", port=1, database="d", server_version="16", system_identifier="7"), 1
        ),
    ),
    "Brokers": (job_main, Brokers),
    "identity_of": (job_main, lambda: {"the tables": "public.client"}),
    "BridgeProgress": (job_main, Bridge),
    "open_session": (job_main, lambda: contextlib.nullcontext(types.SimpleNamespace(version="4.2.0"))),
    "lag_of": (table_report, lambda: (0, None)),
    "Comparison": (table_report, lambda: types.SimpleNamespace(watch=Stopwatch())),
    "TableRun": (
        table_report,
        lambda: types.SimpleNamespace(
            compare=lambda: Compared(
                counts=Counts(source_rows=3, identical=3),
                rounds=(Round(number=0, snapshot="1:1:", lsn="0/1", keys=0, in_flight=0),),
                findings=None,
                fence_wait_s=0.0,
                offsets=(),
                mode="full",
            )
        ),
    ),
    "compare_replica": (
        table_report,
        lambda: ComparedReplica(ReplicaCounts(table="public.client", lsn="0/1", rows=3, identical=3), None),
    ),
    "keep_keys": (table_report, lambda: ""),
    "write_all": (job_main, lambda: types.SimpleNamespace(html="report.html")),
    "as_text": (job_main, lambda: "the report"),
}
"""The stages of a reconciliation, by the name that the job calls them by, with what each gives when all is well."""


@pytest.fixture
def described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job, all of whose stages go well; its SIGTERM is the test runner's own."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    for name, (module, result) in STAGES.items():
        if name != "write_all":
            monkeypatch.setattr(module, name, lambda *_, result=result, **__: result())
    path = tmp_path / "job.json"
    path.write_text(document(job(tmp_path / "report")), encoding="utf-8")
    return path


def job(folder: Path, **options: Any) -> ReconcileJob:
    server = PostgresSettings(host="127.0.0.1", port=1, database="d", user="u")
    given: dict[str, Any] = {
        "run": "r",
        "tool_version": "1",
        "spark": SparkSettings(),
        "kafka": KafkaSettings(options={"bootstrap.servers": "127.0.0.1:1"}),
        "source": server,
        "replica": server,
        "stream": Stream(name="t", slot="cdc_t"),
        "tables": (TABLE,),
        "folder": str(folder),
    }
    return ReconcileJob(**given | options)


def test_a_reconciliation_without_a_breakage_is_identical(described: Path, tmp_path: Path) -> None:
    assert entry.main(["reconcile", str(described)]) == 0
    assert from_json((tmp_path / "report" / "report.json").read_text(encoding="utf-8")).verdict == "identical"
    assert not (tmp_path / "report" / "work").exists()


@pytest.mark.parametrize("error", BREAKAGES, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("stage", STAGES)
def test_a_reconciliation_that_breaks_at(
    stage: str, error: Exception, described: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = tmp_path / "report" / "report.json"
    earlier.parent.mkdir()
    earlier.write_text('{"verdict": "identical"}', encoding="utf-8")
    broken = raising(error)
    if stage == "open_session":  # where it is entered, behind the looks at the servers
        monkeypatch.setattr(job_main, stage, lambda *_: Broken(error))
    else:
        monkeypatch.setattr(STAGES[stage][0], stage, broken)
    assert entry.main(["reconcile", str(described)]) == 2
    if stage != "as_text":  # it stands behind the report
        assert not earlier.exists() or from_json(earlier.read_text(encoding="utf-8")).verdict == "not_verified"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_job_that_is_killed(number: signal.Signals, tmp_path: Path) -> None:
    """It hangs at a server that takes the connection and says nothing. Asked to end, it leaves no rows behind."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = PostgresSettings(host="127.0.0.1", port=silent.getsockname()[1], database="d", user="u")
        accepted = []

        def kill() -> None:
            accepted.append(silent.accept()[0])
            (child,) = (each for each in psutil.Process().children() if "cdc.spark" in arguments(each))
            child.send_signal(number)

        killer = threading.Thread(target=kill)
        killer.start()
        before = signal.getsignal(signal.SIGTERM)
        try:
            assert run_job("reconcile", job(tmp_path / "killed", source=server, redact=True)) == 2
        finally:
            signal.signal(signal.SIGTERM, before)
            killer.join()
            accepted[0].close()
    assert (tmp_path / "killed" / "work").exists() is (number == signal.SIGKILL)


def test_a_python_that_cannot_even_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``python -m cdc.spark`` ends with 1 when the package is broken: that is not "different".

    Nor "identical", which Python takes an unknown end for: of children that nobody waits for, as some supervisors ask.
    """
    (tmp_path / "cdc").mkdir()
    (tmp_path / "cdc" / "__init__.py").write_text("raise ImportError('half an installation')", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGCHLD)}
    try:
        for handling in (signal.SIG_DFL, signal.SIG_IGN):
            signal.signal(signal.SIGCHLD, handling)
            assert run_job("health", job(tmp_path)) == 2, handling
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class TestCommands:
    """What the commands make of it."""

    def code_of(self, command: Callable[[], None]) -> int:
        app = typer.Typer()
        app.command()(answering(command))
        return CliRunner().invoke(app, []).exit_code

    @pytest.mark.parametrize(
        "error",
        [*BREAKAGES[:5], SourceUnavailable("no answer", remedy="try again"), DecodeError("x")],
        ids=lambda e: type(e).__name__,
    )
    def test_a_command_that_breaks(self, error: Exception) -> None:
        assert self.code_of(lambda: raising(error)()) == 2

    @pytest.mark.parametrize("code", [0, 1, 2, INTERRUPTED])
    def test_an_answer_is_handed_on(self, code: int) -> None:
        assert self.code_of(lambda: raising(typer.Exit(code))()) == code

    @pytest.mark.parametrize("kind", KINDS)
    def test_every_spark_command_answers_so(self, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
        name = {"verify": "reconcile"}.get(kind, kind)
        module = f"cdc.cli.{commands.COMMANDS[name].module}"
        tables = ["public.t", "--to", "folder"] if kind in ("snapshot", "audit") else []
        monkeypatch.setattr(f"{module}.load_config", raising(OSError("broken")))
        assert CliRunner().invoke(cli.app, [name, *tables]).exit_code == 2
        monkeypatch.setattr(importlib, "import_module", raising(ModuleNotFoundError("No module named 'x'")))
        assert CliRunner().invoke(cli.app, [name, *tables]).exit_code == 2

    @pytest.mark.parametrize(("code", "repairs"), [(0, False), (1, True), (2, False), (INTERRUPTED, False)])
    def test_a_repair_follows_a_difference_and_nothing_else(
        self, code: int, repairs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[str] = []

        def repair(_: object, found: ReconcileJob, *, asks: bool) -> int:
            assert not asks
            assert found.keys_to is not None
            assert Path(found.keys_to).is_dir()
            asked.append(found.keys_to)
            return 0

        monkeypatch.setattr(reconcile_command, "run_job", lambda *_: code)
        monkeypatch.setattr(reconcile_command, "repair_and_verify", repair)
        monkeypatch.setattr(reconcile_command, "load_config", lambda _: types.SimpleNamespace(secrets=lambda: ()))
        monkeypatch.setattr(reconcile_command, "configure", lambda *_: None)
        monkeypatch.setattr(reconcile_command, "spark_settings", lambda *_, **__: SparkSettings())
        monkeypatch.setattr(reconcile_command, "reconcile_job", lambda *_: job(tmp_path))
        done = CliRunner().invoke(cli.app, ["reconcile", "--repair", "--yes", "--report", str(tmp_path)])
        assert done.exit_code == (0 if repairs else code), done.output
        assert bool(asked) is repairs
        assert not any(map(os.path.exists, asked)), "the keys outlive the repair"


def test_a_master_that_does_not_answer_is_told_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as master:
        port = master.getsockname()[1]
        refuse_silent_master(f"spark://127.0.0.1:1,127.0.0.1:{port}")
    for silent in (f"spark://127.0.0.1:{port}", "spark://nowhere", "spark://127.0.0.1:x,[::1]:1"):
        with pytest.raises(JobError, match="no Spark master answers at spark://"):
            refuse_silent_master(silent)
    refuse_silent_master("local[2]")
    refuse_silent_master("k8s://https://127.0.0.1:1")
