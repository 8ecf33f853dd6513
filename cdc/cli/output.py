"""Makes standard output accept every character in any locale, because table names and values can contain any."""

from __future__ import annotations

import codecs
import io
import json
import sys
from typing import Final

_ESCAPING: Final = "cdc.escaping"


def escape_what_cannot_be_shown() -> None:
    """Write characters that standard output cannot encode as JSON escapes, such as ``\\u2192``.

    Otherwise a command would end in a traceback after its work, if the locale's encoding is not UTF-8. JSON output
    keeps its meaning with these escapes.
    """
    codecs.register_error(_ESCAPING, _escaped)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors=_ESCAPING)


def _escaped(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end
