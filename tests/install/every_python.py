"""Wheel and sdist on every Python that is here, dependencies from the package index: ``make test-install``."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.architecture.pages import pages
from tests.install.environments import build
from tests.install.test_wheel import EVERY_HELP, NOBODY

PYTHONS = ("python3.11", "python3.12", "python3.13", "python3.14")
HERE = [each for each in PYTHONS if shutil.which(each) and not subprocess.call([each, "-c", ""])]


@pytest.fixture(scope="session")
def sdist(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(project, "sdist", tmp_path_factory.mktemp("sdist"))


@pytest.mark.parametrize("python", HERE)
@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_commands_run(python: str, kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True)

    assert run(python, "-m", "venv", tmp_path / "env").returncode == 0
    installed = run(tmp_path / "env/bin/pip", "install", "-q", request.getfixturevalue(kind))
    assert installed.returncode == 0, installed.stderr
    assert run(tmp_path / "env/bin/cdc", "--version").returncode == 0
    helped = run(tmp_path / "env/bin/python", "-c", EVERY_HELP)
    assert helped.stdout.startswith("{} 2"), helped.stdout + helped.stderr
    (tmp_path / "cdc.yaml").write_text(NOBODY)
    checked = run(tmp_path / "env/bin/cdc", "check")
    assert checked.returncode == 3, checked.stderr
    assert "FAIL  source" in checked.stdout


def test_the_sdist_holds_what_its_pages_link_to(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    links = {path for page in pages() for path, _ in page.links}
    assert links
    assert links <= held
