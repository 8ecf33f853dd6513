"""Floating point numbers and the texts that PostgreSQL prints of them, both ways. Pure.

PostgreSQL prints the fewest digits that are nearer to the number than to its neighbours (d2s.c and f2s.c). Python's
``repr`` does nearly the same. ``exact_double`` and ``exact_single`` follow PostgreSQL's rule with fractions;
``double_text`` and ``single_text`` give the same texts many times faster, wherever ``repr`` and the like must agree.
"""

from __future__ import annotations

import struct
from decimal import Decimal
from fractions import Fraction
from math import copysign, inf, isfinite, isinf, nextafter
from typing import Final

_SINGLE: Final = struct.Struct("<f")
_BITS: Final = struct.Struct("<I")
_DOUBLE: Final = struct.Struct("<d")
_DOUBLE_BITS: Final = struct.Struct("<Q")

_INFINITE: Final = 0x7F800000
"""The bits of an infinite real; larger ones are NaNs."""
_SMALLEST_NORMAL: Final = 0x00800000
_HALF_WAY: Final = 1 << 28
"""The last 29 bits of a double that lies in the middle between two reals."""
_BELOW_HALF: Final = (1 << 29) - 1

_REFUSAL: Final = "it is out of range for a real"


def double_text(value: float) -> str:
    """Returns a double as PostgreSQL prints it."""
    # Only from 2**53 on, a decimal of 17 digits or fewer can lie in the middle between two doubles. That is where repr
    # differs. It also writes numbers from 1e15 on without an exponent for longer than PostgreSQL does.
    if -1e15 < value < 1e15:
        return repr(value).removesuffix(".0")
    if not isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    return ("-" if value < 0 else "") + exact_double(abs(value))


def single_text(raw: bytes) -> str:
    """Returns a real as PostgreSQL prints it.

    Args:
        raw: its four bytes, the lowest first.
    """
    (value,) = _SINGLE.unpack(raw)
    if not isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    bits = _BITS.unpack(raw)[0] & 0x7FFFFFFF
    minus = "-" if copysign(1, value) < 0 else ""
    if bits == 0:
        return f"{minus}0"
    # At a power of two, the neighbours are not equally far. Below the normal numbers, there are fewer digits.
    if bits & 0x7FFFFF and bits >= _SMALLEST_NORMAL:
        for places in (6, 7, 8, 9):
            text = f"{value:.{places}g}" if places == 6 or -1e6 < value < 1e6 else f"{value:.{places - 1}e}"
            near = float(text)
            try:
                is_found = _SINGLE.pack(near) == raw
            except OverflowError:
                break
            if is_found:
                if _is_half_way(near):
                    break
                return text
    return minus + exact_single(bits)


def nearest_single(text: str) -> bytes:
    """Returns the real that is nearest to a decimal, as four bytes, the lowest first.

    It rounds the exact decimal only once: by way of a double, the result may be another number.

    Raises:
        ValueError: not a number, or out of range for a real.
    """
    near = float(text)
    if not isfinite(near):
        if text.lstrip("+-")[:1].isdigit():
            raise ValueError(_REFUSAL)
        return _SINGLE.pack(near)
    try:
        raw = _SINGLE.pack(near)
    except OverflowError:
        raise ValueError(_REFUSAL) from None
    bits = _BITS.unpack(raw)[0]
    if bits & 0x7FFFFFFF > _SMALLEST_NORMAL and not _is_half_way(near):
        return raw
    if near == 0 and not text.lower().partition("e")[0].strip("+-0."):
        return raw
    return _BITS.pack(nearest_bits(text.lstrip("+-"), abs(near)) | (0x80000000 if text[0] == "-" else 0))


def _is_half_way(near: float) -> bool:
    """Whether the nearest double to a decimal may be in the middle between two reals, so that rounding twice may err.

    It does not see the middles below the smallest normal real, which lie at other bits.
    """
    (bits,) = _DOUBLE_BITS.unpack(_DOUBLE.pack(near))
    return bool(bits & _BELOW_HALF == _HALF_WAY)


def nearest_bits(text: str, near: float) -> int:
    """Returns the bits of the real that is nearest to a positive decimal.

    Args:
        text: the decimal.
        near: the double that is nearest to it.

    Raises:
        ValueError: out of range for a real.
    """
    try:
        bits: int = _BITS.unpack(_SINGLE.pack(near))[0]
    except OverflowError:
        raise ValueError(_REFUSAL) from None
    exact = Fraction(Decimal(text))
    around = [max(bits - 1, 0), bits, bits + 1]
    bits = min(around, key=lambda each: (abs(_of_bits(each) - exact), each & 1))
    if bits in (0, _INFINITE):
        raise ValueError(_REFUSAL)
    return bits


def _of_bits(bits: int) -> Fraction:
    """Returns the number with these bits; for infinity, the number that would follow the last finite one."""
    return Fraction(2**128) if bits >= _INFINITE else Fraction(_SINGLE.unpack(_BITS.pack(bits))[0])


def exact_double(size: float) -> str:
    """Returns the shortest text of a positive double."""
    return _shortest(size, nextafter(size, 0), nextafter(size, inf), 15)


def exact_single(bits: int) -> str:
    """Returns the shortest text of the positive real with these bits. Its neighbours are those of its bits."""
    below, size, above = (_SINGLE.unpack(_BITS.pack(each))[0] for each in (bits - 1, bits, bits + 1))
    return _shortest(size, below, above, 6)


def _shortest(size: float, below: float, above: float, fixed: int) -> str:
    """Returns the fewest digits that are nearer to a number than to its neighbours, as PostgreSQL's d2s.c and f2s.c do.

    Args:
        size: the number, positive.
        below: the next smaller number.
        above: the next larger number; it may be infinite.
        fixed: numbers with more digits than this before the point get an exponent, as do numbers below 0.0001.
    """
    exact, low = Fraction(size), Fraction(below)
    high = 2 * exact - low if isinf(above) else Fraction(above)
    decimals = (each for digits in range(17) for each in _around(size, digits))
    written = next(each for each in decimals if low < 2 * Fraction(each) - exact < high).normalize()
    places = written.adjusted()
    if -4 <= places < fixed:
        return format(written, "f")
    return f"{written.scaleb(-places):f}e{places:+03d}"


def _around(size: float, digits: int) -> tuple[Decimal, Decimal]:
    """Returns the nearest decimal with so many digits after its first, and the next larger one.

    The neighbour below a power of two is nearer than the one above. So the nearest decimal may lie below the middle to
    it, while the next one is near enough: 2**-957 is printed as 8.209073602596753e-289, and not with a digit more.
    """
    nearest = Decimal(f"{size:.{digits}e}")
    return nearest, nearest + Decimal((0, (1,), int(nearest.as_tuple().exponent)))
