"""What a run was asked, which comparison it is, and what it leaves behind: nothing of another run counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cdc.contract.jobspec.deployment import (
    JobColumn,
    JobTable,
    KafkaSettings,
    LakeSettings,
    PostgresSettings,
    SparkSettings,
    Stream,
)
from cdc.contract.jobspec.reconcile import ReconcileJob
from cdc.spark.errors import JobError
from cdc.spark.reconcile.identity import identity_of, read_identity, refuse_another, write_identity
from cdc.spark.reconcile.run_folder import RunFolder, occupied
from cdc.spark.reconcile.selection import only_compared, refuse_unknown, why_nothing
from cdc.spark.reconcile.table_run import too_long

SERVER = PostgresSettings(host="h", port=5432, database="d", user="u")
TABLE = JobTable(
    namespace="public",
    name="client",
    topic="t.public.client",
    key=("id",),
    columns=tuple(JobColumn(name=name, sql_type="text", kind="text") for name in ("id", "city", "name")),
)
TOPICS = {TABLE.topic: "AAA"}


def job(folder: Path | str = "f", **options: Any) -> ReconcileJob:
    given: dict[str, Any] = {
        "run": "r",
        "tool_version": "1",
        "spark": SparkSettings(),
        "kafka": KafkaSettings(options={"bootstrap.servers": "b"}),
        "source": SERVER,
        "stream": Stream(name="t", slot="cdc_t"),
        "tables": (TABLE,),
        "folder": str(folder),
    }
    return ReconcileJob(**given | options)


class TestSelection:
    def test_a_mistyped_column_is_refused_with_its_neighbours(self) -> None:
        with pytest.raises(JobError, match=r"public\.client has no published column 'ctiy'.*did you mean city"):
            refuse_unknown(job(columns={"public.client": ("name", "ctiy")}))
        with pytest.raises(JobError, match="did you mean id, city, name"):
            refuse_unknown(job(columns={"public.client": ("",)}))

    def test_a_table_that_is_not_compared(self) -> None:
        with pytest.raises(JobError, match=r"--columns names public\.other"):
            refuse_unknown(job(columns={"public.other": ("id",)}))
        with pytest.raises(JobError, match="no table to compare"):
            refuse_unknown(job(tables=()))

    def test_what_is_chosen(self) -> None:
        assert only_compared(job(), TABLE) == ("id", "city", "name")
        chosen = job(columns={"public.client": ("city",)})
        refuse_unknown(chosen)
        assert only_compared(chosen, TABLE) == ("city",)

    def test_a_condition_that_holds_for_no_row(self) -> None:
        assert "id > 10 holds for no row" in why_nothing(job(where="id > 10"), 0)
        assert not why_nothing(job(where="id > 10"), 1)
        assert not why_nothing(job(), 0), "an empty table equals an empty topic"


OTHERS: dict[str, dict[str, Any]] = {
    "--where": {"where": "id > 100"},
    "--columns": {"columns": {"public.client": ("city",)}},
    "--passes": {"passes": 2},
    "--replica": {"replica": SERVER},
    "--lake": {"replica": LakeSettings(system="delta", path="/lake")},
    "--state": {"state": "/kept"},
    "--certificate": {"certificate": "/proofs.jsonl"},
    "the source": {"source": SERVER.model_copy(update={"database": "e"})},
    "the bridge": {"stream": Stream(name="t", slot="another")},
    "the tables": {"tables": (TABLE, TABLE.model_copy(update={"name": "other"}))},
    "the definition of public.client": {"tables": (TABLE.model_copy(update={"columns": TABLE.columns[:2]}),)},
}
"""By what a resumed run must not differ in, options that differ in it."""

IRRELEVANT: dict[str, Any] = {
    "run": "s",
    "tool_version": "2",
    "spark": SparkSettings(master="spark://h:1"),
    "kafka": KafkaSettings(options={"bootstrap.servers": "another:1"}),
    "folder": "g",
    "fence_timeout_s": 1,
    "max_snapshot_s": 1,
    "connections": 1,
    "rounds": 0,
    "resume": True,
    "samples": 0,
    "redact": True,
    "keys_to": "/tmp/k",
    "replica_lsn": "0/1",
    "repaired": {"public.client": {"keys": 1, "rows": 1, "tombstones": 0, "touched": 0}},
}
"""Options that do not change what is compared, or (the cluster's address) are known by what is: the topics' ids."""


class TestIdentity:
    @pytest.mark.parametrize("name", OTHERS)
    def test_another_comparison_is_refused_by_name(self, name: str) -> None:
        begun = identity_of(job(), "7, timeline 1", TOPICS)
        with pytest.raises(JobError, match=f"{name} was .* and is "):
            refuse_another(begun, identity_of(job(**OTHERS[name]), "7, timeline 1", TOPICS))

    def test_another_server_topic_or_list_of_keys_is(self, tmp_path: Path) -> None:
        begun = identity_of(job(), "7, timeline 1", TOPICS)
        with pytest.raises(JobError, match=r"the source was .*timeline 1 and is .*timeline 2"):
            refuse_another(begun, identity_of(job(), "7, timeline 2", TOPICS))
        with pytest.raises(JobError, match=r"the topic of public\.client was AAA and is BBB"):
            refuse_another(begun, identity_of(job(), "7, timeline 1", {TABLE.topic: "BBB"}))
        listed = tmp_path / "keys"
        listed.write_bytes(b"1")
        with pytest.raises(JobError, match=r"the keys of public\.client was nothing and is "):
            refuse_another(begun, identity_of(job(keys={"public.client": str(listed)}), "7, timeline 1", TOPICS))

    def test_every_option_either_decides_or_does_not(self) -> None:
        """A new option must be put into one of the two lists: forgotten, it would be resumed with another value."""
        decide = {name for options in OTHERS.values() for name in options} | {"keys"}
        assert decide | set(IRRELEVANT) == set(ReconcileJob.model_fields)
        begun = identity_of(job(), "7, timeline 1", TOPICS)
        refuse_another(begun, identity_of(job(**IRRELEVANT), "7, timeline 1", TOPICS))

    def test_comes_back_from_its_file(self, tmp_path: Path) -> None:
        identity = identity_of(job(where="name = 'é'"), "7, timeline 1", TOPICS)
        assert read_identity(tmp_path / "run.json") is None
        write_identity(tmp_path / "run.json", identity)
        assert read_identity(tmp_path / "run.json") == identity


def leave_rows(asked: ReconcileJob, error: BaseException) -> None:
    with occupied(asked) as folder:
        (folder.work / "rows").write_text("whole rows", encoding="utf-8")
        raise error


class TestFolder:
    def test_nothing_of_an_earlier_run_is_left(self, tmp_path: Path) -> None:
        for name in (
            "report.json",
            "report.html",
            "junit.xml",
            "report.txt",
            "differing/k",
            "after-repair/report.json",
        ):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text("identical", encoding="utf-8")
        (tmp_path / "theirs.txt").write_text("mine", encoding="utf-8")
        with pytest.raises(RuntimeError, match="broke off"):
            leave_rows(job(tmp_path), RuntimeError("broke off"))
        assert {each.name for each in tmp_path.iterdir()} == {"work", "theirs.txt", ".cdc-reconcile.lock"}
        with occupied(job(tmp_path)) as folder:
            assert list(folder.work.iterdir()) == []

    def test_an_interrupted_run_goes_on_and_a_finished_one_does_not(self, tmp_path: Path) -> None:
        with pytest.raises(JobError, match="holds no run to resume"), occupied(job(tmp_path, resume=True)):
            pass
        with occupied(job(tmp_path)) as folder:
            write_identity(folder.identity, {})
            (folder.work / "done-0.json").write_text("{}", encoding="utf-8")
        with occupied(job(tmp_path, resume=True)) as folder:
            assert json.loads((folder.work / "done-0.json").read_text(encoding="utf-8")) == {}
            folder.done()
        assert not folder.work.exists()
        with pytest.raises(JobError, match="holds no run to resume"), occupied(job(tmp_path, resume=True)):
            pass

    def test_a_run_that_hides_values_keeps_no_rows_however_it_ends(self, tmp_path: Path) -> None:
        with occupied(job(tmp_path, redact=True)) as folder:
            (folder.work / "rows").write_text("whole rows", encoding="utf-8")
        assert not folder.work.exists()
        with pytest.raises(SystemExit):
            leave_rows(job(tmp_path, redact=True), SystemExit(2))
        assert not (tmp_path / "work").exists()
        with (
            pytest.raises(JobError, match="--resume does not go with --redact"),
            occupied(job(tmp_path, redact=True, resume=True)),
        ):
            pass

    def test_rows_that_a_killed_run_left_in_a_folder_of_its_own_go_with_the_next_run(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def begun(name: str, **options: Any) -> RunFolder:
            asked = job(tmp_path / name, **options)
            with occupied(asked) as folder:
                write_identity(folder.identity, identity_of(asked, "7, timeline 1", TOPICS))
            return folder

        others = begun("reconcile-20261120T000000Z", stream=Stream(name="t", slot="another"))
        named = begun("nightly")
        killed = begun("reconcile-20261121T000000Z")
        with occupied(job(tmp_path / "reconcile-20261122T000000Z")) as goes_on:
            assert not killed.work.exists()
            assert "reconcile-20261121T000000Z: removed the rows" in capsys.readouterr().err
            with occupied(job(tmp_path / "reconcile-20261123T000000Z")) as last:
                assert goes_on.work.is_dir(), "another run is in it"
        with occupied(job(tmp_path / "elsewhere")):
            assert last.work.is_dir(), "whoever names a folder looks after it"
        assert others.work.is_dir(), "another bridge's run may be resumed"
        assert named.work.is_dir()

    def test_two_runs_in_one_folder(self, tmp_path: Path) -> None:
        first = occupied(job(tmp_path))
        first.__enter__()
        with pytest.raises(JobError, match="another run is writing"), occupied(job(tmp_path)):
            pass
        first.__exit__(None, None, None)
        (tmp_path / "file").touch()
        with pytest.raises(JobError, match="cannot write to"), occupied(job(tmp_path / "file" / "report")):
            pass


class TestTooLong:
    """A snapshot of 100,000,000 rows was given up after half an hour: nobody had said that it would be."""

    def test_told_before_with_options_that_are_enough(self) -> None:
        said = too_long(200_000_000, 1, 1800)
        assert said.startswith("about 200,000,000 rows may take 67 minutes per snapshot")
        passes = int(said.partition("--passes ")[2].partition(",")[0])
        seconds = int(said.partition("--max-snapshot-seconds ")[2])
        assert not too_long(200_000_000, passes, 1800)
        assert not too_long(200_000_000, 1, seconds)

    def test_silent_where_it_is_enough(self) -> None:
        assert not too_long(80_000_000, 1, 1800)
        assert not too_long(0, 1, 0.001)
