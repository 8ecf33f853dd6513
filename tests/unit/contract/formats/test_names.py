"""PostgreSQL's names as Avro's, and back."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc.contract.formats.names import mangled, original

ANY = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=63)
TRICKY = st.lists(
    st.sampled_from(["_", "u", "_u", "5f", "a", "e9", "0", "_u5f_", "é", " ", "g", "U", "\U0010ffff"]),
    min_size=1,
    max_size=12,
).map("".join)
NAMES = ANY | TRICKY


@pytest.mark.parametrize(
    ("name", "avro"),
    [
        ("id", "id"),
        ("Id", "Id"),
        ("_", "_"),
        ("__u__", "__u__"),
        ("_user", "_user"),
        ("a_u5f", "a_u5f"),
        ("größe", "gr_uf6__udf_e"),
        ("1st", "_u31_st"),
        ("a1", "a1"),
        ("a b", "a_u20_b"),
        ("my-bridge", "my_u2d_bridge"),
        ("_u5f_", "_u5f_u5f_"),
        ("_ua_", "_u5f_ua_"),
        ("_uaé", "_u5f_ua_ue9_"),  # without the first escape, it would begin with one of "a"
        ("_uxé", "_ux_ue9_"),
        ("éua_", "_ue9_ua_"),
        ("👍", "_u1f44d_"),
        ("a\n", "a_ua_"),
    ],
)
def test_names(name: str, avro: str) -> None:
    assert mangled(name) == avro
    assert original(avro) == name


@settings(max_examples=500)
@given(NAMES)
def test_a_name_comes_back(name: str) -> None:
    avro = mangled(name)
    assert re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", avro)
    assert original(avro) == name
    if re.fullmatch("[A-Za-z][A-Za-z0-9]*", name):
        assert avro == name


@settings(max_examples=500)
@given(NAMES, NAMES)
def test_no_two_names_are_written_alike(one: str, other: str) -> None:
    assert (mangled(one) == mangled(other)) == (one == other)


@settings(max_examples=500)
@given(st.from_regex("[A-Za-z_](?:[A-Za-z0-9_]|_u[0-9a-f]{1,5}_){0,20}", fullmatch=True))
def test_what_looks_like_an_avro_name_is_read_or_refused(avro: str) -> None:
    try:
        name = original(avro)
    except ValueError:
        return
    assert original(mangled(name)) == name


def test_an_escape_of_a_character_that_does_not_exist_is_refused() -> None:
    for escape in ("_u110000_", "_uffffffffffffffffffffffff_"):
        with pytest.raises(ValueError, match=r"\w"):
            original(escape)
