"""Rows of test_options.py about the section registry."""

from __future__ import annotations

from typing import Any

URL = "https://registry:8081"
DEFAULTS: dict[str, Any] = {
    "registry.subjects": "topic",
    "registry.context": None,
    "registry.user": None,
    "registry.password": None,
    "registry.password_file": None,
    "registry.token": None,
    "registry.token_file": None,
    "registry.ca_file": None,
    "registry.certificate_file": None,
    "registry.key_file": None,
}
ACCEPTED: list[tuple[str, Any]] = [
    ("registry.url", "http://registry"),
    ("registry.url", "https://registry.example/apis/ccompat/v7/"),
    ("registry.url", "http://[::1]:8081,https://other:8081"),
    ("registry.subjects", "record"),
    ("registry.subjects", "topic-record"),
    ("registry.context", "staging.eu-1"),
    ("registry", None),
]
_NOT_AN_ADDRESS = "url: write https://host:port, several with commas and no spaces"
REFUSED: list[tuple[str, Any, str]] = [
    ("registry.url", "", "must not be empty"),
    ("registry.url", "registry:8081", _NOT_AN_ADDRESS),
    ("registry.url", "ftp://registry", _NOT_AN_ADDRESS),
    ("registry.url", "https://", _NOT_AN_ADDRESS),
    ("registry.url", "https://registry:port", _NOT_AN_ADDRESS),
    ("registry.url", "https://registry:0", _NOT_AN_ADDRESS),
    ("registry.url", "https://a, https://b", _NOT_AN_ADDRESS),
    ("registry.url", "https://a,", _NOT_AN_ADDRESS),
    ("registry.url", "https://cdc@registry", "url must not contain user and password"),
    ("registry.url", "https://registry?token=x", "url must not contain ? or #"),
    ("registry.subjects", "table", "should be 'topic', 'record' or 'topic-record'"),
    ("registry.context", ".staging", "no dot at the beginning"),
    ("registry.context", "a:b", "write letters, digits"),
    ("registry.user", "", "must not be empty"),
    ("registry.user", "cdc", "give user and password (or password_file), or neither"),
    ("registry.password", "pw", "give user and password (or password_file), or neither"),
    ("registry", {"url": URL, "user": "a:b", "password": "pw"}, "user must not contain a colon"),
    ("registry", {"url": URL, "user": "a", "password": "pw", "token": "t"}, "give user and password, or token"),
    ("registry", {"url": URL, "token": "t", "token_file": "f"}, "the token is given in token and in token_file"),
    ("registry.token", "", "token must be of printable ASCII"),
    ("registry.token", "a b", "token must be of printable ASCII characters without spaces"),
    ("registry.token_file", "gone", "token_file: cannot read"),
    ("registry.key_file", "k.pem", "key_file is given without certificate_file"),
    ("registry", {"url": "http://registry", "ca_file": "ca.pem"}, "ca_file would not be used: write https:// in url"),
    ("registry", {"url": "http://registry", "certificate_file": "c"}, "certificate_file would not be used"),
]
