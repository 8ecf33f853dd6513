"""Every error that is made has a remedy: where this module is imported, one without is a failure.

Imported by all tests, and by the process that bridge and sink are forked from.
"""

from __future__ import annotations

from typing import Final

from cdc.base.errors import CdcError

_make: Final = CdcError.__init__


def _checked(self: CdcError, message: str, *, remedy: str) -> None:
    assert is_remedy(remedy), f"{type(self).__name__} without a remedy ({remedy!r}): {message}"
    _make(self, message, remedy=remedy)


def is_remedy(text: object) -> bool:
    """Whether it tells a person what to do, if only to wait."""
    return isinstance(text, str) and bool(text.strip()) and not text.lower().startswith("nothing")


def is_watching() -> bool:
    """Whether errors are looked at in this process."""
    return CdcError.__init__ is _checked


CdcError.__init__ = _checked  # type: ignore[method-assign]  # replaced on purpose
