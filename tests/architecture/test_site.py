"""docs/mkdocs.yml: the pages as a site, in which every page has a place and every link and anchor leads somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.architecture.pages import pages
from tests.architecture.tree import ROOT


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "-f", ROOT / "docs/mkdocs.yml", "-d", tmp_path / "site"],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (built.returncode, built.stdout, built.stderr) == (0, "", "")
    shown = {
        each.path.with_name("index.html") if each.path.name == "README.md" else each.path.with_suffix(".html")
        for each in pages()
    }
    assert [str(path) for path in shown if not (tmp_path / "site" / path).exists()] == []
    styles = re.findall(r'<link rel="stylesheet" href="([^"]+)"', (tmp_path / "site/index.html").read_text("utf-8"))
    assert styles
    assert [each for each in styles if not (tmp_path / "site" / each).exists()] == []
