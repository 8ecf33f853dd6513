"""What a cluster gets from the driver."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from spark.session import zipped_packages


def test_shipped_packages_are_whole_and_import_without_an_installation(tmp_path: Path) -> None:
    archive = zipped_packages(tmp_path)
    names = set(zipfile.ZipFile(archive).namelist())
    root = Path(__file__).parents[3]
    assert names == {str(each.relative_to(root)) for part in ("cdc", "spark") for each in (root / part).rglob("*.py")}

    code = f"import sys; sys.path[:0] = [{str(archive)!r}]; import cdc.lsn, spark.errors; print(cdc.lsn.__file__)"
    done = subprocess.run([sys.executable, "-IS", "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith(str(archive)), done.stderr
