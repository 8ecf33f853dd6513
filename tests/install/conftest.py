"""The wheel, built once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.install.environments import build, copy_project


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_project(tmp_path_factory.mktemp("project"))


@pytest.fixture(scope="session")
def wheel(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As it is installed, but for speed: what a compiler needs to optimise, no test here asks for."""
    return build(project, "wheel", tmp_path_factory.mktemp("wheel"), CFLAGS="-O0")
