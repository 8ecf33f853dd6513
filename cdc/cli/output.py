"""Standard output that takes every character, whatever the locale: tables may have any name, and values be anything."""

from __future__ import annotations

import codecs
import io
import json
import sys
from typing import Final

_ESCAPING: Final = "cdc.escaping"


def escape_what_cannot_be_shown() -> None:
    """From now on a character that standard output cannot encode is written as JSON has it, ``\\u2192``.

    Or a command that has done its work ended in a traceback, where the locale is no UTF-8. JSON stays what it says.
    """
    codecs.register_error(_ESCAPING, _escaped)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors=_ESCAPING)


def _escaped(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end
