"""Finds the secrets in a configuration, and shows values without them."""

from __future__ import annotations

import re
from urllib.parse import unquote

MASK = "********"

# libpq reads a URL's user part up to the first '@' before the path; masking up to the last one can only hide more.
_URL_USER = re.compile(r"^(?P<before>[A-Za-z][\w+.-]*://[^:@/]*:)(?P<secret>[^/]*)(?=@)")
_URL_PARAMETER = re.compile(r"(?P<before>[?&](?:ssl)?password=)(?P<secret>[^&#]*)", re.IGNORECASE)
_KEYWORD = re.compile(
    r"(?P<before>(?<![A-Za-z_])(?:ssl)?password\s*=\s*)(?P<secret>'(?:[^'\\]|\\.)*'|(?:[^\s'\\]|\\.)(?:[^\s\\]|\\.)*)",
    re.IGNORECASE,
)
_SECRET_OPTION = re.compile(
    r"password|passphrase|secret|^salt$|\.key\.pem$|token$|^sasl\.oauthbearer\.config$|^sasl\.jaas", re.IGNORECASE
)


def is_secret_key(name: str) -> bool:
    """Whether the value of this configuration key or librdkafka option must never be shown."""
    return name == "dsn" or (_SECRET_OPTION.search(name) is not None and not name.endswith(("_file", ".url")))


def dsn_secrets(dsn: str) -> tuple[str, ...]:
    """Returns every password in a connection string or URL, as it is written there and as the server gets it."""
    found: list[str] = []
    for pattern in _patterns(dsn):
        for match in pattern.finditer(dsn):
            written = match["secret"]
            found += [written, unquote(written) if "://" in dsn else re.sub(r"\\(.)", r"\1", written.strip("'"))]
    return tuple(secret for secret in dict.fromkeys(found) if secret.strip("'"))


def mask_dsn(dsn: str) -> str:
    """Returns the connection string with each password replaced by ``********``."""
    for pattern in _patterns(dsn):
        dsn = pattern.sub(rf"\g<before>{MASK}", dsn)
    return dsn


def _patterns(dsn: str) -> tuple[re.Pattern[str], ...]:
    return (_URL_USER, _URL_PARAMETER) if "://" in dsn else (_KEYWORD,)
