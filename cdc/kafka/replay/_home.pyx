# cython: boundscheck=False, wraparound=False, cdivision=True
"""The twin of ``home.sift`` in C; ``cdef`` declares what is C."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t

from cdc.base._source cimport CDC_SOURCE

SOURCE = CDC_SOURCE


cdef uint32_t _murmur2(const unsigned char* data, Py_ssize_t length) noexcept:
    """Computes what ``cdc.contract.partition.murmur2`` does."""
    cdef uint32_t mix = 0x5BD1E995U
    cdef uint32_t h = 0x9747B28CU ^ <uint32_t>length
    cdef uint32_t k
    cdef Py_ssize_t place = 0
    while length - place >= 4:
        k = (
            <uint32_t>data[place]
            | <uint32_t>data[place + 1] << 8
            | <uint32_t>data[place + 2] << 16
            | <uint32_t>data[place + 3] << 24
        ) * mix
        h = (h * mix) ^ ((k ^ k >> 24) * mix)
        place += 4
    if place < length:
        k = 0
        if length - place == 3:
            k = <uint32_t>data[place + 2] << 16
        if length - place >= 2:
            k |= <uint32_t>data[place + 1] << 8
        h = (h ^ (k | <uint32_t>data[place])) * mix
    h = (h ^ h >> 13) * mix
    return h ^ h >> 15


def sift(records, counts):
    """Does what ``home.sift`` does."""
    cdef uint32_t count = 1
    cdef long partition, found
    cdef bytes key
    at_home, strays = [], []
    former = None
    for record in records:
        topic = record[0]
        if topic is not former:
            former, count = topic, counts.get(topic, 1)
        key = record[3]
        if count != 1 and key is not None:
            partition = record[1]
            found = (_murmur2(<unsigned char*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key)) & 0x7FFFFFFF) % count
            if found != partition:
                strays.append(record)
                continue
        at_home.append(record)
    return at_home, strays
