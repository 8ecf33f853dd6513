"""What ``cdc grants kafka`` prints for a view."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from cdc.cli.grants_command import grants_app


def test_a_view_reads_the_bridges_topics_and_those_of_other_programs(tmp_path: Path) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text("name: shop\nkafka: {bootstrap: k}\nview: {store: memory, topics: {app-configs: {}}}\n")
    printed = CliRunner().invoke(grants_app, ["kafka", "-c", str(path)], catch_exceptions=False).stdout
    lines = printed.partition("# What view shop needs.\n")[2].splitlines()
    assert ["--topic shop. --resource-pattern-type prefixed" in lines[0], "--topic app-configs" in lines[1]] == [
        True
    ] * 2
    assert all("--operation Read --operation DescribeConfigs" in line for line in lines)
    assert len(lines) == 2
