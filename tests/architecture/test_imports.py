"""The import rule of cdc/README.md, as import-linter sees it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.architecture.tree import ROOT, modules


def test_import_contracts() -> None:
    lint = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert lint.returncode == 0, lint.stdout + lint.stderr


def test_rooms_map_names_every_room() -> None:
    said = (ROOT / "cdc" / "README.md").read_text()
    folders = {path.parent for path in modules("cdc") if path.name == "__init__.py"} - {Path("cdc")}
    rooms = {f"{folder.relative_to('cdc')}/" for folder in folders}
    rooms |= {path.name for path in (ROOT / "cdc" / "base").glob("*.py") if not path.name.startswith("__")}
    missing = sorted(room for room in rooms if f"`{room}" not in said)
    assert not missing, f"cdc/README.md does not say what these are: {missing}"
