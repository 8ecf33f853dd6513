"""Rows of the tables in ``test_options.py`` about ``cdc serve``."""

from __future__ import annotations

from typing import Any

DEFAULTS: dict[str, Any] = {
    "serve.host": "127.0.0.1",
    "serve.port": 8090,
    "serve.workers": 1,
    "serve.tokens_file": None,
    "serve.tls_cert": None,
    "serve.tls_key": None,
    "serve.cors_origins": (),
    "serve.aliases": {},
    "serve.request_timeout_s": 10.0,
    "serve.max_watches": 256,
}

ACCEPTED: list[tuple[str, Any]] = [
    ("serve.host", "::1"),
    ("serve.port", 0),
    ("serve.port", 65535),
    ("serve.workers", 64),
    ("serve.cors_origins", ("https://shop.example", "http://localhost:3000")),
    ("serve.aliases", {"/users": "public.users", "/shop/open-orders": "public.orders"}),
    ("serve.request_timeout_s", 1.0),
    ("serve.request_timeout_s", 300.0),
    ("serve.max_watches", 0),
    ("serve.max_watches", 10_000),
]

REFUSED: list[tuple[str, Any, str]] = [
    ("serve.host", "", "must not be empty"),
    ("serve.port", 65536, "less than or equal to 65535"),
    ("serve.workers", 0, "greater than or equal to 1"),
    ("serve.workers", 65, "less than or equal to 64"),
    ("serve.tls_cert", "cert.pem", "give tls_cert and tls_key, or neither"),
    ("serve.tls_key", "key.pem", "give tls_cert and tls_key, or neither"),
    ("serve.cors_origins", ["*"], "write scheme and host, for instance https://shop.example"),
    ("serve.cors_origins", ["https://shop.example/"], "write scheme and host"),
    ("serve.aliases", {"users": "public.users"}, "write a path such as /users"),
    ("serve.aliases", {"/users/": "public.users"}, "no / at the end"),
    ("serve.aliases", {"/v1/users": "public.users"}, "/v1 is a page of the service itself; choose another path"),
    ("serve.aliases", {"/users": ""}, "must not be empty"),
    ("serve.request_timeout_s", 0.5, "greater than or equal to 1"),
    ("serve.request_timeout_s", 301, "less than or equal to 300"),
    ("serve.max_watches", -1, "greater than or equal to 0"),
    ("serve.max_watches", 10_001, "less than or equal to 10000"),
]
