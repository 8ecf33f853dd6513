"""Converts PostgreSQL's names, which may hold any character, to Avro's, which hold letters, digits and underscores.

A plain name stays as it is. Each other character, and a digit at the beginning, becomes ``_u`` with its code point in
hexadecimal digits and ``_``: ``größe`` is ``gr_uf6__udf_e``. An underscore that would look like the beginning of an
escape is escaped itself. So each name has one form, and each form belongs to one name.
"""

from __future__ import annotations

import re
from typing import Final

_ESCAPED: Final = re.compile(
    # An underscore before what would look like the rest of an escape; what is escaped later begins with an underscore,
    # too. Then a digit at the beginning, and all characters that Avro does not allow.
    r"_(?=u[0-9a-f]+(?:_|[^A-Za-z0-9_]))|^[0-9]|[^A-Za-z0-9_]"
)
_ESCAPE: Final = re.compile(r"_u([0-9a-f]+)_")


def mangled(name: str) -> str:
    """Returns the Avro name of a name."""
    return _ESCAPED.sub(lambda found: f"_u{ord(found[0]):x}_", name)


def original(name: str) -> str:
    """Returns the name that ``mangled`` made this Avro name of.

    Raises:
        ValueError: an escape names a character that does not exist.
    """
    try:
        return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), name)
    except OverflowError:
        raise ValueError(f"there is no such character: {name!r}") from None
