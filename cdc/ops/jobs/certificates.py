"""Verifies a file of certificates: the file here, and what it says about topics in a Spark job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import typer

from cdc.base.config import Config
from cdc.base.errors import ConfigError
from cdc.base.words import counted
from cdc.contract.jobspec.certificate import RunCertificate, VerifyJob, read_chain
from cdc.ops.jobs.answers import SOMETHING_WRONG
from cdc.ops.jobs.describe import kafka_settings, spark_settings
from cdc.ops.jobs.launch import run_job


def whole_certificate(
    certificate: Path | None, where: str | None, columns: str | None, passes: int, state: Path | None
) -> str | None:
    """Returns the absolute path of ``--certificate``, which is of whole tables, each at one snapshot."""
    if certificate is None:
        return None
    given = {"--where": where, "--columns": columns, "--passes": passes > 1 or None, "--state": state}
    if beside := [name for name, value in given.items() if value is not None]:
        raise ConfigError(
            f"--certificate and {' and '.join(beside)} cannot be combined",
            remedy="leave one out: a certificate is of whole tables, read as a whole, each at one snapshot",
        )
    return str(certificate.resolve())


class ChosenCertificate(NamedTuple):
    """A certificate, and its line in the file."""

    certificate: RunCertificate
    line: int


def chosen_certificate(path: Path | None, line: int | None, *, is_alone: bool) -> ChosenCertificate:
    """Returns the certificate to verify, once all lines of the file have been seen to follow each other.

    Raises:
        typer.Exit: with 1 if they do not.
    """
    if path is None:
        raise ConfigError("--line needs --verify", remedy="name the file, too: --verify FILE --line 3")
    if not is_alone:
        raise ConfigError(
            "--verify compares nothing, so it takes no tables, and none of the options of a comparison",
            remedy="give it -c, --line, --samples, --redact, --master and --conf only",
        )
    try:
        chain = read_chain(path, line)
    except OSError as error:
        raise ConfigError(
            f"cannot read {path}: {error.strerror}", remedy="name a file that --certificate wrote"
        ) from error
    if chain.fault:
        typer.echo(f"BROKEN {path}: {chain.fault}")
        raise typer.Exit(SOMETHING_WRONG)
    if chain.chosen is None:
        raise ConfigError(f"{path} has no line {line}", remedy=f"name one of its {chain.lines} lines, or none")
    told = f"{counted(chain.lines, 'certificate')}, each of which names the one before"
    typer.echo(f"{path}: {told}; SHA-256 of the last: {chain.last_hash}")
    return ChosenCertificate(chain.chosen, line or chain.lines)


def verified(
    config: Config, chosen: ChosenCertificate, master: str, conf: Sequence[str] | None, samples: int, redact: bool
) -> int:
    """Starts the job that computes the digests anew, and returns its exit code."""
    told = chosen.certificate
    if told.name != config.name:
        raise ConfigError(
            f"the certificate is of the bridge {told.name}, and the configuration of {config.name}",
            remedy="give the configuration of that bridge: -c FILE",
        )
    typer.echo(
        f"line {chosen.line}: {told.verdict} on {told.began}, run {told.run},"
        f" server {told.system_identifier}, timeline {told.timeline}, database {told.database}"
    )
    spark, kafka = spark_settings(master, conf=conf or ()), kafka_settings(config)
    job = VerifyJob(spark=spark, kafka=kafka, certificate=told, samples=samples, redact=redact)
    return run_job("verify", job)
