"""The section ``registry``: the schema registry that knows what values mean, and how to log in there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, SecretStr, ValidationInfo, model_validator

from cdc.base.config import checks, password_file

_STRICT = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, hide_input_in_errors=True)


def _context(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", name):
        raise ValueError("write letters, digits, '.', '_' and '-', and no dot at the beginning: cdc adds it")
    return name


class RegistryConfig(BaseModel):
    """The schema registry, which speaks Confluent's API."""

    model_config = _STRICT

    url: Annotated[str, AfterValidator(checks.present)]
    """Address at which the API begins: https://host:8081 of Confluent and Karapace, https://host/apis/ccompat/v7 of
    Apicurio. Several addresses of one registry are separated by commas, and are tried in this order."""
    subjects: Literal["topic", "record", "topic-record"] = "topic"
    """What names the subjects, as Confluent's strategies do: topic (default, as everybody's serializers) is
    <topic>-value; record is the record's name in the schema, <name>.<schema>.<table>; topic-record is both."""
    context: Annotated[str, AfterValidator(_context)] | None = None
    """Context of the registry that holds the subjects, without the dot at its beginning. By default the default one,
    because readers need any other in their addresses, too."""
    user: Annotated[str, AfterValidator(checks.present)] | None = None
    """User for basic authentication, or the API key of a hosted registry. By default nobody logs in, because a registry
    asks nobody by default."""
    password: SecretStr | None = None
    """Password of that user, kept out of url so that it is never printed."""
    password_file: str | None = None
    """File whose first line is the password; a relative path starts at the configuration file."""
    token: SecretStr | None = None
    """Bearer token, for a registry that takes one instead of a user and a password. It is sent as it is, because cdc
    renews no tokens: use one that stays valid."""
    token_file: str | None = None
    """File whose first line is the token; a relative path starts at the configuration file."""
    ca_file: str | None = None
    """PEM file of the authorities that may have signed the registry's certificate; by default those that browsers
    trust, because hosted registries show such certificates. A relative path starts at the configuration file."""
    certificate_file: str | None = None
    """PEM file of our own certificate and its chain, if the registry asks clients for one (mTLS); few do."""
    key_file: str | None = None
    """PEM file of that certificate's key, without a password; by default the key stands in certificate_file."""

    @model_validator(mode="after")
    def _check(self, info: ValidationInfo) -> RegistryConfig:
        for url in self.urls:
            _check_url(url)
        password_file.settle(self, info)
        password_file.settle(self, info, what="token")
        if (self.user is None) != (self.password is None):
            raise ValueError(
                "give user and password (or password_file), or neither: one is of no use without the other"
            )
        if self.user is not None and self.token is not None:
            raise ValueError("give user and password, or token, not both: only one of them can be sent")
        if self.user is not None and ":" in self.user:
            raise ValueError("user must not contain a colon: basic authentication ends the name there")
        if self.token is not None and not re.fullmatch(r"[!-~]+", self.token.get_secret_value()):
            raise ValueError("token must be of printable ASCII characters without spaces")
        if self.key_file is not None and self.certificate_file is None:
            raise ValueError("key_file is given without certificate_file, which it belongs to")
        directory = Path((info.context or {}).get("directory", ""))
        for name in ("ca_file", "certificate_file", "key_file"):
            if (given := getattr(self, name)) is not None:
                if not any(url.startswith("https:") for url in self.urls):
                    raise ValueError(f"{name} would not be used: write https:// in url")
                object.__setattr__(self, name, str(directory / given))
        return self

    @property
    def urls(self) -> tuple[str, ...]:
        """The addresses in ``url``, without a slash at the end."""
        return tuple(each.rstrip("/") for each in self.url.split(","))


def _check_url(url: str) -> None:
    """Refuses what is not an address; the message never shows it, because it may contain a password."""
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        sound = False
    if not sound or re.search(r"\s", url):
        raise ValueError("url: write https://host:port, several with commas and no spaces")
    if "@" in parts.netloc:
        raise ValueError("url must not contain user and password; give them as user and password or password_file")
    if parts.query or parts.fragment:
        raise ValueError("url must not contain ? or #: paths of the API are added at its end")
