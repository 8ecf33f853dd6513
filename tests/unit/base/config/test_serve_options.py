"""Options of ``cdc serve`` that depend on one another, or on where the file lies."""

from __future__ import annotations

from pathlib import Path

import yaml

from cdc.base.config import load
from tests.unit.base.config.test_options import BASE, load_with


def test_the_files_of_the_service_start_at_the_configuration_file(tmp_path: Path) -> None:
    assert load_with(tmp_path, "serve.tokens_file", "tokens.yaml").serve.tokens_file == str(tmp_path / "tokens.yaml")
    assert load_with(tmp_path, "http.tokens_file", "tokens.yaml").http.tokens_file == str(tmp_path / "tokens.yaml")
    path = tmp_path / "cdc.yaml"
    path.write_text(yaml.safe_dump(BASE | {"serve": {"tls_cert": "/etc/cert.pem", "tls_key": "key.pem"}}))
    settings = load(path, {}).serve
    assert (settings.tls_cert, settings.tls_key) == ("/etc/cert.pem", str(tmp_path / "key.pem"))


def test_the_longer_of_two_short_paths_is_tried_first(tmp_path: Path) -> None:
    aliases = {"/users": "public.users", "/users/vip": "public.vips"}
    assert list(load_with(tmp_path, "serve.aliases", aliases).serve.table_of()) == ["/users/vip", "/users"]
