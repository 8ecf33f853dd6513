"""Inputs that a fuzzer found (``make fuzz``), and those it begins with: the product keeps its promises about each.

Among them is one input for each defect that the fuzzer found.
"""

from __future__ import annotations

import pytest

from tests.fuzz.targets import TARGETS
from tests.golden.files import fuzzed


@pytest.mark.parametrize("name", TARGETS)
def test_promises_about_bytes(name: str) -> None:
    target = TARGETS[name]
    kept = fuzzed(name)
    assert kept
    for data in (b"", *target.seeds(), *kept):
        try:
            target.run(data)
        except Exception as error:
            raise AssertionError(f"{name}: {data!r}") from error
