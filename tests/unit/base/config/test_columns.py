"""Rules for columns as YAML has them, and the salt."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.base.config import Config, load
from cdc.base.config.source_tables import ColumnsConfig
from cdc.base.errors import ConfigError

_SALT = "0123456789abcdef"


def loaded(tmp_path: Path, source: str, environment: dict[str, str] | None = None) -> Config:
    path = tmp_path / "cdc.yaml"
    path.write_text(f"name: a\nsource: {{dsn: host=db, {source}}}\nkafka: {{bootstrap: k}}\n")
    return load(path, environment or {})


def test_rules_are_read(tmp_path: Path) -> None:
    """YAML has its own null, and a list may be one text."""
    text = "columns: {public.t: {exclude: [a], mask: {b: null, c: 'null', d: last4}}, public.s: {policy: strict}}"
    assert loaded(tmp_path, text).source.columns == {
        "public.t": ColumnsConfig(exclude=("a",), mask={"b": "null", "c": "null", "d": "last4"}),
        "public.s": ColumnsConfig(policy="strict"),
    }


def test_a_salt_is_a_secret_wherever_it_comes_from(tmp_path: Path) -> None:
    (tmp_path / "salt").write_text(f"{_SALT}\n")
    columns = "columns: {public.t: {mask: {a: sha256}}}"
    for given, environment in (
        (f"salt: {_SALT}", {}),
        ("salt_file: salt", {}),
        ("salt: another salt of the file", {"CDC_SOURCE__SALT": _SALT}),
    ):
        config = loaded(tmp_path, f"{columns}, {given}", environment)
        assert config.source.salt is not None
        assert config.source.salt.get_secret_value() == _SALT
        assert _SALT in config.secrets()
        assert _SALT not in repr(config)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("publication_mode: all_tables}", "makes one that cannot filter rows"),
        ("publication: p}\nsnapshot: {mode: never}", r"which snapshot\.mode: never forbids"),
    ],
)
def test_conditions_need_a_filter_and_a_reading(tmp_path: Path, more: str, said: str) -> None:
    path = tmp_path / "cdc.yaml"
    path.write_text(f"name: a\nkafka: {{bootstrap: k}}\nsource: {{dsn: host=db, rows: {{public.t: 'a = 1'}}, {more}\n")
    with pytest.raises(ConfigError, match=said):
        load(path, {})
