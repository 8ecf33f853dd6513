"""Texts of floating point numbers: the fast ways against the exact ones, over random bits."""

from __future__ import annotations

import math
import os
import random
import struct
from fractions import Fraction

import pytest

from cdc.contract.floats import (
    double_text,
    exact_double,
    exact_single,
    nearest_bits,
    nearest_single,
    single_text,
)
from cdc.contract.formats.canonical import reading_of

SEED = int(os.environ.get("SEED", str(random.SystemRandom().randrange(1 << 32))))


def double(bits: int) -> float:
    value: float = struct.unpack("<d", struct.pack("<Q", bits))[0]
    return value


def single(bits: int) -> float:
    value: float = struct.unpack("<f", struct.pack("<I", bits))[0]
    return value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1, "0.1"),
        (-0.0, "-0"),
        (1e15, "1e+15"),
        (999999999999999.0, "999999999999999"),
        (0.0001, "0.0001"),
        (-0.00001, "-1e-05"),
        (1e23, "9.999999999999999e+22"),  # 1e+23 lies in the middle between two doubles
        (5e-324, "5e-324"),
        (2.0**-957, "8.209073602596753e-289"),  # as PostgreSQL 16 prints it; the nearest decimal of 16 digits is not
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
    ],
)
def test_doubles(value: float, text: str) -> None:
    assert double_text(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3.3, "3.3"),
        (-0.0, "-0"),
        (16777216.0, "1.6777216e+07"),
        (999999.0, "999999"),
        (1e6, "1e+06"),
        (1e-45, "1e-45"),
        (3.4028235e38, "3.4028235e+38"),
        (2.0**-96, "1.2621775e-29"),  # as PostgreSQL 16 prints it
        (math.nan, "NaN"),
        (-math.inf, "-Infinity"),
    ],
)
def test_reals(value: float, text: str) -> None:
    assert single_text(struct.pack("<f", value)) == text
    assert nearest_single(text) == struct.pack("<f", value)


def test_a_decimal_beside_the_middle_of_two_reals_is_rounded_once() -> None:
    rng = random.Random(SEED)
    for _ in range(2_000):
        bits = rng.randrange(0x0000_0001, 0x7F7F_FFFF)
        middle = (Fraction(single(bits)) + Fraction(single(bits + 1))) / 2
        scale = 10**200
        whole = middle.numerator * scale // middle.denominator
        below, above = f"{whole - 1}e-200", f"{whole + 2}e-200"
        found = [struct.unpack("<I", nearest_single(text))[0] for text in (below, above)]
        assert found == [bits, bits + 1], f"SEED={SEED}"


@pytest.mark.parametrize("text", ["1e39", "3.5e38", "1e-60", "1e999", "x", ""])
def test_a_text_that_is_no_real_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        nearest_single(text)


def test_the_fast_texts_of_doubles_are_the_exact_ones() -> None:
    rng = random.Random(SEED)
    patterns = [rng.getrandbits(64) for _ in range(4_000)]
    patterns += [bits + more for bits in (k << 52 for k in range(0, 2047, 7)) for more in (0, 1) if bits + more]
    numbers = [double(bits) for bits in patterns]
    numbers += [rng.choice((1, -1)) * rng.randrange(10**6) / 10 ** rng.randrange(1, 6) for _ in range(2_000)]
    numbers += [math.ldexp(rng.randrange(1, 1 << 54), rng.randrange(-12, 4)) for _ in range(3_000)]
    for value in numbers:
        if math.isfinite(value) and value:
            exact = ("-" if value < 0 else "") + exact_double(abs(value))
            assert double_text(value) == exact, f"SEED={SEED} {value.hex()}"
            assert float(exact) == value, f"SEED={SEED} {value.hex()}"


def test_the_fast_texts_of_reals_are_the_exact_ones() -> None:
    rng = random.Random(SEED)
    patterns = [rng.getrandbits(31) for _ in range(8_000)]
    patterns += [bits + more for bits in (k << 23 for k in range(255)) for more in (-1, 0, 1) if bits + more > 0]
    patterns += [
        struct.unpack("<I", struct.pack("<f", rng.randrange(1, 10**7) / 10 ** rng.randrange(6)))[0]
        for _ in range(4_000)
    ]
    for bits in patterns:
        if bits < 0x7F80_0000:
            exact, raw = exact_single(bits), struct.pack("<I", bits)
            assert single_text(raw) == exact, f"SEED={SEED} {bits:#x}"
            assert single_text(struct.pack("<I", bits | 0x8000_0000)) == f"-{exact}", f"SEED={SEED} {bits:#x}"
            assert nearest_single(exact) == raw, f"SEED={SEED} {bits:#x}"
            assert nearest_bits(exact, float(exact)) == bits, f"SEED={SEED} {bits:#x}"


def test_keys_in_requests_are_printed_in_the_same_way() -> None:
    assert reading_of("float8").read(repr(2.0**-957)) == "8.209073602596753e-289"
    assert reading_of("float4").read(repr(2.0**-96)) == "1.2621775e-29"
