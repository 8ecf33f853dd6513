# cython: boundscheck=False, wraparound=False
"""The twin of ``cut.climb`` in C; ``cdef`` declares what is C."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint64_t
from libc.string cimport memcmp

from cdc.base._source cimport CDC_SOURCE
from cdc.contract.header import header_position
from cdc.base.errors import DecodeError
from cdc.base.lsn import LSN

SOURCE = CDC_SOURCE

cdef enum:
    _AT = 13  # length of "v=1;op=u;lsn="


cdef int _hex(const char* text, Py_ssize_t* place, uint64_t* value) noexcept:
    """Read up to eight hexadecimal digits from ``place`` on; returns how many there were."""
    cdef int digits = 0
    cdef char each
    value[0] = 0
    while digits < 8:
        each = text[place[0]]  # CPython ends the bytes with a zero byte, which is not a digit and stops the loop
        if c'0' <= each <= c'9':
            value[0] = value[0] << 4 | <uint64_t>(each - c'0')
        elif c'A' <= each <= c'F':
            value[0] = value[0] << 4 | <uint64_t>(each - c'A' + 10)
        else:
            break
        digits += 1
        place[0] += 1
    return digits


cdef bint _lsn(bytes header, uint64_t* lsn) noexcept:
    """Whether the header begins as the bridge writes it; if so, ``lsn`` is set."""
    cdef const char* text = PyBytes_AS_STRING(header)
    cdef Py_ssize_t place = _AT
    cdef Py_ssize_t begin
    cdef uint64_t high, low
    if PyBytes_GET_SIZE(header) <= _AT or memcmp(text, b"v=1;op=", 7) != 0 or memcmp(text + 8, b";lsn=", 5) != 0:
        return False
    if text[7] != c'u' and text[7] != c'c' and text[7] != c'd' and text[7] != c'r' and text[7] != c't':
        return False
    if _hex(text, &place, &high) == 0 or text[place] != c'/':
        return False
    place += 1
    if _hex(text, &place, &low) == 0 or PyBytes_GET_SIZE(header) - place < 7 or memcmp(text + place, b";seq=", 5) != 0:
        return False
    place += 5
    begin = place
    while c'0' <= text[place] <= c'9':
        place += 1
    if not 1 <= place - begin <= 19 or text[place] != c';':
        return False
    lsn[0] = high << 32 | low
    return True


def climb(records, start):
    """Does what ``cut.climb`` does."""
    cdef uint64_t newest = start
    cdef uint64_t lsn = 0
    cdef bint falls = False
    for record in records:
        if not _lsn(record[5], &lsn):
            try:
                lsn = header_position(record[5]).lsn
            except DecodeError:
                continue
        if lsn < newest:
            falls = True
        else:
            newest = lsn
    return LSN(newest), falls
