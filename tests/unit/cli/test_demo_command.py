"""``cdc demo`` refuses what no bridge can write, before it starts a server."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from cdc.base.errors import ConfigError
from cdc.cli.demo_command import demo


@pytest.mark.parametrize("form", ["protobuf", "json-schema"])
def test_the_envelope_is_written_in_json_or_avro(form: str) -> None:
    app = typer.Typer()
    app.command()(demo)
    error = CliRunner().invoke(app, ["--envelope", "debezium", "--format", form]).exception
    assert isinstance(error, ConfigError)
    assert (error.message, error.remedy) == (
        f"--envelope debezium is written in JSON or Avro, not in {form}",
        "leave out --format or --envelope",
    )
