"""``cdc reconcile``: compares topics and replica with the live source in Spark, at one snapshot of the source."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from cdc.base.config import Config
from cdc.base.daemon.logs import configure
from cdc.cli.options import ConfigOption, ConfOption, LogLevelOption, load_config
from cdc.contract.jobspec.reconcile import ReconcileJob
from cdc.ops.jobs.answers import SOMETHING_WRONG
from cdc.ops.jobs.certificates import chosen_certificate, verified, whole_certificate
from cdc.ops.jobs.comparing import columns_of_one, compared_with, reconcile_job, resumed, whole_state
from cdc.ops.jobs.describe import spark_settings
from cdc.ops.jobs.heal import repair_and_verify
from cdc.ops.jobs.launch import run_job

Tables = Annotated[
    list[str] | None, typer.Argument(metavar="TABLE", help="schema.table; all captured tables by default.")
]
Folder = Annotated[
    Path | None,
    typer.Option("--report", help="Folder for the report; reconcile-TIME by default.", metavar="FOLDER"),
]
Where = Annotated[
    str | None,
    typer.Option(
        help="Compare only rows of one table that meet this SQL condition, in source and replica.", metavar="SQL"
    ),
]
Columns = Annotated[
    str | None,
    typer.Option(help="Compare only these columns, separated by commas; slower if many rows differ in other columns."),
]
Replica = Annotated[
    bool | None,
    typer.Option(
        "--replica/--no-replica",
        help="Compare the replica as well, if there is one; it does unless you say no.",
        show_default=False,
    ),
]
Lake = Annotated[
    str | None,
    typer.Option(
        "--lake",
        metavar="FORMAT:DIR",
        help="Compare this lake, delta:DIR or iceberg:DIR, in the place of the replica, at its newest exact cut.",
    ),
]
AsksRepair = Annotated[
    bool, typer.Option("--repair", help="Have the bridge publish the differing keys again, then compare them again.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Repair without asking.")]
Rounds = Annotated[
    int, typer.Option(help="How often to compare keys again that changed during the comparison.", min=0, max=20)
]
Passes = Annotated[
    int, typer.Option(help="Divide the keys among this many snapshots, each held for less time.", min=1, max=4096)
]
Connections = Annotated[
    int, typer.Option(help="Number of connections that read the source at the same time.", min=1, max=64)
]
MaxSnapshot = Annotated[
    float, typer.Option(help="Longest time to hold a snapshot: meanwhile VACUUM cannot remove dead rows.", min=1)
]
FenceTimeout = Annotated[
    float, typer.Option(help="Seconds to wait for the bridge to publish what the snapshot sees.", min=1)
]
Samples = Annotated[int, typer.Option(help="Number of samples in the report, per table and class.", min=0, max=1000)]
Redact = Annotated[
    bool, typer.Option("--redact", help="Keep values out of the report and its folder; show only which columns differ.")
]
State = Annotated[
    Path | None,
    typer.Option(
        help="Folder for hashes of the topics, with which the next run reads only new records.", metavar="FOLDER"
    ),
]
CertificateFile = Annotated[
    Path | None,
    typer.Option(
        "--certificate",
        help="Add a line to this file that says what the run proved, with digests of the topics.",
        metavar="FILE",
    ),
]
Verify = Annotated[
    Path | None,
    typer.Option(
        "--verify",
        help="Compare nothing: check this file of certificates, and compute the digests of its last one anew.",
        metavar="FILE",
    ),
]
Line = Annotated[int | None, typer.Option(help="Verify this line of the file, not the last.", min=1)]
Resume = Annotated[
    bool,
    typer.Option("--resume", help="Continue an interrupted run in the folder of --report, with the same options."),
]
Master = Annotated[str, typer.Option(help="Spark master; local[*] is this machine.", metavar="URL")]


def reconcile(
    tables: Tables = None,
    config: ConfigOption = None,
    folder: Folder = None,
    where: Where = None,
    columns: Columns = None,
    replica: Replica = None,
    lake: Lake = None,
    repair: AsksRepair = False,
    yes: Yes = False,
    rounds: Rounds = 3,
    passes: Passes = 1,
    connections: Connections = 4,
    max_snapshot_seconds: MaxSnapshot = 1800,
    fence_timeout: FenceTimeout = 60,
    samples: Samples = 10,
    redact: Redact = False,
    state: State = None,
    certificate: CertificateFile = None,
    verify: Verify = None,
    line: Line = None,
    resume: Resume = False,
    master: Master = "local[*]",
    conf: ConfOption = None,
    log_level: LogLevelOption = "warning",
) -> None:
    """Compare source, topics and replica row by row with Spark, while all of them keep running.

    It is exact at one snapshot of the source: a key that changes meanwhile is compared again, never called different.
    The report is text, JSON, JUnit XML, HTML, and Parquet with the differing keys. Exit codes: 0 if all is identical,
    1 if something differs, 2 if something could not be verified.

    Examples:

        cdc reconcile public.orders --where "created_at < now() - interval '1 hour'"

        cdc reconcile --repair --yes

        cdc reconcile --state /var/lib/cdc/reconcile    # every night: reads only what is new

        cdc reconcile --lake delta:/lake/shop

        cdc reconcile public.orders --master spark://spark:7077 --report /shared/reports/today

        cdc reconcile --certificate proofs.jsonl
    """
    if verify is not None or line is not None:
        beside = (tables, folder, where, columns, replica is not None, lake, repair, state, certificate, resume)
        chosen = chosen_certificate(verify, line, is_alone=not any(beside))
        raise typer.Exit(verified(_loaded(config, log_level), chosen, master, conf, samples, redact))
    compared = compared_with(replica, lake)
    options = {
        "where": where, "columns": columns_of_one(where, columns, tables or ()), "rounds": rounds, "passes": passes,
        "fence_timeout_s": fence_timeout, "max_snapshot_s": max_snapshot_seconds, "connections": connections,
        "state": whole_state(state, passes), "resume": resumed(resume, folder), "samples": samples, "redact": redact,
        "certificate": whole_certificate(certificate, where, columns, passes, state),
    }  # fmt: skip
    loaded = _loaded(config, log_level)
    job = reconcile_job(loaded, tables or (), folder, spark_settings(master, conf=conf or ()), compared, options)
    raise typer.Exit(_run(loaded, job, repair, asks=not yes))


def _loaded(config: Path | None, log_level: LogLevelOption) -> Config:
    loaded = load_config(config)
    configure(log_level, loaded.secrets())
    return loaded


def _run(config: Config, job: ReconcileJob, repair: bool, *, asks: bool) -> int:
    # Keys are data, so the files for the repair are readable by this user only, and deleted afterwards.
    with tempfile.TemporaryDirectory(prefix="cdc-repair-") as keys_to:
        job = job.model_copy(update={"keys_to": keys_to if repair else None})
        code = run_job("reconcile", job)
        return repair_and_verify(config, job, asks=asks) if repair and code == SOMETHING_WRONG else code
