"""``cdc reconcile``: compares topics and replica with the live source in Spark, at one snapshot of the source."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from cdc import __version__
from cdc.base import extras
from cdc.base.config import Config
from cdc.base.daemon.logs import configure
from cdc.base.errors import ConfigError
from cdc.cli.options import ConfigOption, ConfOption, LogLevelOption, load_config
from cdc.contract.jobspec.deployment import LakeSettings, SparkSettings
from cdc.contract.jobspec.reconcile import ReconcileJob
from cdc.ops.jobs.answers import SOMETHING_WRONG
from cdc.ops.jobs.describe import beside_lake, describe_deployment, spark_settings
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
    """
    _refuse_resuming_nowhere(resume, folder)
    compared = _compared(replica, lake)
    options = {
        "where": where,
        "columns": _columns_of_one(where, columns, tables or ()),
        "fence_timeout_s": fence_timeout,
        "max_snapshot_s": max_snapshot_seconds,
        "connections": connections,
        "rounds": rounds,
        "passes": passes,
        "state": _whole_state(state, passes),
        "resume": resume,
        "samples": samples,
        "redact": redact,
    }
    loaded = load_config(config)
    configure(log_level, loaded.secrets())
    job = reconcile_job(loaded, tables or (), folder, spark_settings(master, conf=conf or ()), compared, options)
    raise typer.Exit(_run(loaded, job, repair, asks=not yes))


def _run(config: Config, job: ReconcileJob, repair: bool, *, asks: bool) -> int:
    # Keys are data, so the files for the repair are readable by this user only, and deleted afterwards.
    with tempfile.TemporaryDirectory(prefix="cdc-repair-") as keys_to:
        job = job.model_copy(update={"keys_to": keys_to if repair else None})
        code = run_job("reconcile", job)
        return repair_and_verify(config, job, asks=asks) if repair and code == SOMETHING_WRONG else code


def _refuse_resuming_nowhere(resume: bool, folder: Path | None) -> None:
    if resume and folder is None:
        raise ConfigError("--resume needs --report", remedy="name the folder of the interrupted run: --report FOLDER")


def _columns_of_one(where: str | None, columns: str | None, tables: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    if (where, columns) != (None, None) and len(tables) != 1:
        raise ConfigError(
            "--where and --columns need exactly one table", remedy="name it: cdc reconcile public.orders …"
        )
    return {} if columns is None else {tables[0]: tuple(map(str.strip, columns.split(",")))}


def _whole_state(state: Path | None, passes: int) -> str | None:
    if state is not None and passes > 1:
        raise ConfigError(
            "--state and --passes cannot be combined", remedy="leave one out: --state keeps hashes of whole topics"
        )
    return None if state is None else str(state.resolve())


def _compared(replica: bool | None, lake: str | None) -> LakeSettings | bool:
    """Returns the lake that is compared, or whether the replica is; takes ``delta:/lake/shop`` apart."""
    if lake is None:
        return replica is not False
    if replica is not None:
        raise ConfigError(
            "--lake takes the place of the replica, so it cannot be combined with --replica or --no-replica",
            remedy="leave one of them out, and compare the replica in a run of its own",
        )
    system, _, path = lake.partition(":")
    if system in ("delta", "iceberg") and path:
        if system == "iceberg":
            extras.require("iceberg", "cdc reconcile --lake iceberg:DIR")
        return LakeSettings.model_validate({"system": system, "path": str(Path(path).absolute())})
    if system == "parquet" and path:
        raise ConfigError(
            "cdc reconcile cannot compare Parquet files: they have no cut, so no LSN at which they equal the source",
            remedy="mirror into Delta or Iceberg tables, and name their folder: --lake delta:DIR",
        )
    raise ConfigError(f"--lake {lake} does not name a lake", remedy="write --lake delta:DIR or iceberg:DIR")


def reconcile_job(
    config: Config,
    tables: Sequence[str],
    folder: Path | None,
    spark: SparkSettings,
    compared: LakeSettings | bool,
    options: Mapping[str, Any],
) -> ReconcileJob:
    """Describes the comparison that the command line asks for, and makes its folder."""
    run = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    place = (folder or Path(f"reconcile-{run}")).resolve()
    place.mkdir(parents=True, exist_ok=True)
    deployment = describe_deployment(config, tables)
    if isinstance(compared, LakeSettings):
        deployment = beside_lake(deployment, compared)
    return ReconcileJob(
        run=run,
        tool_version=__version__,
        spark=spark,
        kafka=deployment.kafka,
        source=deployment.source,
        replica=deployment.replica if compared else None,
        stream=deployment.stream,
        tables=deployment.tables,
        folder=str(place),
        **options,
    )
