"""What a cluster gets from the driver."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from cdc.spark.session import zipped_package


def test_the_shipped_package_is_whole_and_imports_without_an_installation(tmp_path: Path) -> None:
    archive = zipped_package(tmp_path)
    names = set(zipfile.ZipFile(archive).namelist())
    root = Path(__file__).parents[3]
    beside = {
        f"{place}/{each.relative_to(root / part)}"
        for part, place in (("spark", "cdc/spark"), ("migrations", "cdc/sink/migrations"))
        for each in (root / part).rglob("*.py")
    }
    assert names - beside == {str(each.relative_to(root)) for each in (root / "cdc").rglob("*.py")} - beside
    assert beside <= names

    imports = "from cdc.base import lsn; from cdc.spark import errors; print(lsn.__file__)"
    code = f"import sys; sys.path[:0] = [{str(archive)!r}]; {imports}"
    done = subprocess.run([sys.executable, "-IS", "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith(str(archive)), done.stderr
