"""A replica that takes no writes: ``cdc check`` and ``cdc init`` see it, and a sink that waits says what helps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cdc.base.errors import ConfigError, ReplicaUnavailable
from cdc.cli.cli import app
from cdc.ops.status.checkup import check_replica
from cdc.sink.dialects import open_replica
from tests.integration.ops.status.preflighting import config
from tests.support.servers import Database, OwnStack
from tests.support.standby import Standby


@pytest.fixture
def standby(own_stack: OwnStack) -> Iterator[str]:
    """Its DSN."""
    with Standby.of(own_stack.postgres()) as server:
        yield server.dsn()


def test_a_standby_is_no_replica(
    database: Database, standby: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute("CREATE TABLE items (id integer PRIMARY KEY)")
    asked = config(database.dsn, sink={"dsn": standby})
    (found,) = [each for each in check_replica(asked, ()) if each.level == "FAIL"]
    assert (found.subject, found.text) == ("writes", "refused: this server is a standby")
    assert "target_session_attrs=read-write" in found.remedy
    with pytest.raises(ReplicaUnavailable) as caught:
        open_replica(asked, application_name="test").upgrade()
    assert caught.value.remedy == found.remedy
    monkeypatch.setattr("cdc.ops.setup.seen.look_at_kafka", lambda _: None)
    words = ["--source", database.dsn, "--kafka", "127.0.0.1:1", "--replica", standby, "--yes"]
    refusal = CliRunner().invoke(app, ["init", "-c", str(tmp_path / "shop.yaml"), *words]).exception
    assert isinstance(refusal, ConfigError)
    assert "--replica does not accept writes: it is a standby" in str(refusal)
    assert list(tmp_path.iterdir()) == []
