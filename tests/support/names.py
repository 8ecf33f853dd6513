"""Names that no other test has, on servers that several test processes share."""

from __future__ import annotations

import os
import uuid
from typing import Final

OURS: Final = f"{os.environ.get('PYTEST_XDIST_WORKER', 'gw')}x"
"""In every name that this test process makes, and in no other's: ``gw`` is not in a random number's digits."""


def unique(prefix: str) -> str:
    """``prefix``, this process, and a random number."""
    return f"{prefix}{OURS}{uuid.uuid4().hex[:8]}"
