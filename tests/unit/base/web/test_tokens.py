"""The file of tokens: what may stand in it, and what is said of what may not."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from cdc.base.errors import ConfigError
from cdc.base.web.problem import Problem
from cdc.base.web.tokens import Access, Tokens

LONG = "0123456789abcdef"


def tokens(tmp_path: Path, text: str) -> Tokens:
    path = tmp_path / "tokens.yaml"
    path.write_text(text)
    return Tokens(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: {token: short, tables: [x.y]}", "a.token"),
        (f"a: {{token: {LONG}, sha256: {'a' * 64}}}", "give either token or sha256"),
        ("a: {tables: [x.y]}", "give either token or sha256"),
        ("a: {sha256: abc}", "a.sha256"),
        (f"a: {{token: {LONG}, scope: all}}", "a.scope"),
        (f"a: {{token: {LONG}}}\na: {{token: {LONG}}}", "a is given a second time"),
        ("- a", "found list"),
        (f"a: {{token: {LONG}, tables: [x.y], watches: -1}}", "a.watches"),
        (f'a: {{token: "{LONG} "}}', "no blank or line end"),
        (f'a: {{token: "{LONG}\\r\\n"}}', "no blank or line end"),
        (f"a: {{token: {LONG}ä}}", "only ASCII letters"),
        (f"a: {{token: {LONG}}}\nb: {{token: {LONG}, tables: [x.y]}}", "a and b are the same token"),
        (f"a: {{token: {LONG}}}\nb: {{sha256: {hashlib.sha256(LONG.encode()).hexdigest()}}}", "are the same token"),
        ("", "has no token, so nobody could read anything"),
        ("# none yet", "has no token"),
        ("{}", "has no token"),
        ("a:", "valid dictionary"),
        (f"a: {{token: {LONG}, tables: 2026-02-30}}", "line 1: not valid YAML: this value looks like a date"),
    ],
)
def test_a_file_that_is_wrong(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        tokens(tmp_path, text)
    assert words in str(caught.value)
    assert str(tmp_path / "tokens.yaml") in str(caught.value)
    assert LONG not in str(caught.value)
    assert "short" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"serve\.tokens_file: .*none\.yaml: there is no such file") as caught:
        Tokens(tmp_path / "none.yaml")
    assert caught.value.remedy == "let this process read the file, or leave serve.tokens_file out"


@pytest.mark.parametrize("raw", [b"\xef\xbb\xbfa: {token: %b}\n", b"a:\r\n  token: %b\r\n"], ids=["BOM", "CRLF"])
def test_a_file_that_another_system_wrote(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "tokens.yaml"
    path.write_bytes(raw % LONG.encode())
    assert Tokens(path).access([(b"authorization", f"Bearer {LONG}".encode())]).name == "a"


def test_whose_token_it_is(tmp_path: Path) -> None:
    known = tokens(tmp_path, f"a: {{token: {LONG}, tables: [public.*]}}\nb: {{token: {LONG}x}}")
    assert known.access([(b"host", b"x"), (b"authorization", f"bearer  {LONG}".encode())]).name == "a"
    assert known.access([(b"authorization", f"Bearer {LONG}x".encode())]).name == "b"
    for given in (b"", b"Bearer", LONG.encode(), f"Basic {LONG}".encode(), f"Bearer {LONG[:-1]}".encode()):
        with pytest.raises(Problem) as caught:
            known.access([(b"authorization", given)])
        assert caught.value.status == 401


@pytest.mark.parametrize(
    ("patterns", "table", "may"),
    [
        (["*"], "any.thing", True),
        (["public.*"], "public.users", True),
        (["public.*"], "publicXusers", False),
        (["public.us"], "public.users", False),
        (["public.users"], "xpublic.users", False),
        ([], "", False),
        (["a.b", "c.*d"], "c.xd", True),
    ],
)
def test_which_tables(patterns: list[str], table: str, may: bool) -> None:
    assert Access("a", patterns, metrics=False).may_read(table) is may
