"""A command says what it found, whatever characters the terminal has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

WIDE = "Größe → żółw"


def cdc(*words: str, encoding: str) -> str:
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run([sys.executable, "-m", "cdc", *words], env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stderr == b""
    return done.stdout.decode(encoding)


@pytest.mark.parametrize("encoding", ["latin-1", "utf-8"])
def test_what_the_locale_cannot_show_is_escaped(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(f"name: shop\nkafka: {{bootstrap: k, options: {{client.id: {json.dumps(WIDE)}}}}}\n")
    shown = cdc("config", "show", "-c", str(path), encoding=encoding)
    if encoding == "utf-8":
        assert WIDE in shown
    else:
        said = next(line for line in shown.splitlines() if "client.id" in line).partition(": ")[2]
        assert json.loads(f'"{said}"') == WIDE, "as JSON has it, so that JSON stays JSON"


def test_the_help_needs_no_unicode() -> None:
    assert "old \\u2192 new" in " ".join(cdc("--help", encoding="ascii").replace("|", "").split())
