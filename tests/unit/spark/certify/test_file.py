"""The file that chains certificates: a kill leaves it whole, and whatever is done to it later is told by its line."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from cdc.base.errors import ConfigError
from cdc.cli.reconcile_command import reconcile
from cdc.contract.jobspec.certificate import Bucket, CertifiedFold, CertifiedTable, RunCertificate, read_chain
from cdc.spark.certify.certificate import certificate_file
from cdc.spark.errors import JobError

CERTIFICATE = "reconcile.before_certificate"
FOLD = CertifiedFold(
    topic_id="AAA", offsets=((0, 4),), snapshot="7:7:", lsn="0/1", definitions=(), buckets=(Bucket(3, 2, "0" * 32),)
)
TABLE = CertifiedTable(
    table="public.client", topic="t.public.client", verdict="identical", rows=2, source_rows=2, differences=0,
    replica_differences=None, rounds=(), fold=FOLD,
)  # fmt: skip


def certificate(run: str) -> RunCertificate:
    return RunCertificate(
        previous="", run=run, tool_version="1", began="2026-11-21T00:00:00+00:00", ended="2026-11-21T00:01:00+00:00",
        name="t", slot="cdc_t", system_identifier="7", timeline=1, database="d", verdict="identical", tables=(TABLE,),
    )  # fmt: skip


def add(path: Path, run: str) -> None:
    with certificate_file(str(path)) as file:
        assert file is not None
        file.add(certificate(run))


@pytest.fixture
def proofs(tmp_path: Path) -> Path:
    """A file of three certificates."""
    path = tmp_path / "proofs.jsonl"
    for run in ("first", "second", "third"):
        add(path, run)
    return path


def test_each_names_the_one_before(proofs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chain = read_chain(proofs)
    assert (chain.lines, chain.fault) == (3, "")
    assert chain.chosen is not None
    assert (chain.chosen.run, chain.chosen.tables) == ("third", (TABLE,))
    chosen = read_chain(proofs, 2).chosen
    assert chosen is not None
    assert chosen.run == "second"
    assert read_chain(proofs, 4).chosen is None
    add(proofs, "fourth")
    assert f"line 4 of {proofs}, SHA-256 {read_chain(proofs).last_hash}\n" in capsys.readouterr().err


def changed(lines: list[bytes]) -> list[bytes]:
    return [lines[0], lines[1].replace(b'"rows":2', b'"rows":3'), lines[2]]


BREAKS: dict[str, tuple[Callable[[list[bytes]], list[bytes]], str]] = {
    "a changed line": (changed, "line 3 does not follow line 2"),
    "a line less": (lambda lines: [lines[0], lines[2]], "line 2 does not follow line 1"),
    "lines in another order": (lambda lines: [lines[1], lines[0]], "line 1 names a line before it"),
    "a line twice": (lambda lines: [*lines, lines[2]], "line 4 does not follow line 3"),
    "no beginning": (lambda lines: lines[1:], "line 1 names a line before it"),
    "another format": (lambda lines: [*lines, b'{"version":2}\n'], "line 4 is not a whole certificate of version 1"),
    "a cut line": (lambda lines: [*lines, lines[2][:40]], "line 4 is not a whole certificate of version 1"),
    "no line break": (lambda lines: [*lines[:2], lines[2][:-1]], "line 3 is cut"),
    "nothing": (lambda _: [], "it holds no certificate"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_what_breaks_the_chain_is_told_by_its_line(name: str, proofs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    break_it, told = BREAKS[name]
    proofs.write_bytes(b"".join(break_it(proofs.read_bytes().splitlines(keepends=True))))
    before = proofs.read_bytes()
    with pytest.raises(typer.Exit) as ended:
        reconcile(verify=proofs)
    assert ended.value.exit_code == 1
    assert f"BROKEN {proofs}: {told}" in capsys.readouterr().out
    if before:  # nothing was certified in an empty file
        with pytest.raises(JobError, match=f"{told}.*keep the file as it is"):
            add(proofs, "fourth")
        assert proofs.read_bytes() == before


def test_killed_before_the_line_has_its_place(proofs: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from cdc.base.crashpoints import arm;"
        f"from {__name__} import add; arm({CERTIFICATE!r}); add(Path(sys.argv[1]), 'killed')"
    )
    before = proofs.read_bytes()
    for path, whole in ((proofs, before), (proofs.with_name("none.jsonl"), None)):
        killed = subprocess.run([sys.executable, "-c", script, path], capture_output=True, check=False, timeout=120)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        assert (path.read_bytes() if path.exists() else None) == whole
        add(path, "next")
        chain = read_chain(path)
        assert (chain.lines, chain.fault) == (4 if whole else 1, "")
        assert b"killed" not in path.read_bytes()


def test_one_run_at_a_time(proofs: Path) -> None:
    with certificate_file(str(proofs)), pytest.raises(JobError, match="another run adds a certificate"):
        add(proofs, "beside")
    with pytest.raises(JobError, match="cannot write"):
        add(proofs.parent / "nowhere" / "proofs.jsonl", "first")
    with certificate_file(None) as none:
        assert none is None


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (
            {"certificate": Path("p"), "passes": 4, "where": "id > 1", "tables": ["t"]},
            "--certificate and --where and --",
        ),
        ({"certificate": Path("p"), "state": Path("s")}, "--certificate and --state cannot be combined"),
        ({"verify": Path("p"), "repair": True}, "--verify compares nothing"),
        ({"verify": Path("p"), "replica": False}, "--verify compares nothing"),
        ({"verify": Path("p"), "tables": ["public.client"]}, "--verify compares nothing"),
        ({"line": 1}, "--line needs --verify"),
        ({"verify": Path("/nowhere/p")}, "cannot read /nowhere/p: No such file"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigError, match=why) as refused:
        reconcile(**options)  # type: ignore[arg-type]  # each of its own type
    assert refused.value.remedy


def test_a_line_that_is_not_there(proofs: Path) -> None:
    with pytest.raises(ConfigError, match="has no line 4"):
        reconcile(verify=proofs, line=4)
