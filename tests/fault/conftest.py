"""Processes that are killed are those that a user starts."""

from __future__ import annotations

import pytest

from tests.support.bridge_process import CdcProcess


@pytest.fixture
def process_kind() -> type[CdcProcess]:
    """Interpreter's start and imports included."""
    return CdcProcess
