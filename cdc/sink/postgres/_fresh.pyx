# cython: boundscheck=False, wraparound=False
"""``fresh.split`` in C. Lines with ``cdef`` declare C types."""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE

from cdc.base._source cimport CDC_SOURCE

SOURCE = CDC_SOURCE


def split(bytearray bits, salt, upserts):
    """Does what ``fresh.split`` does."""
    cdef unsigned char* field = <unsigned char*>PyByteArray_AS_STRING(bits)
    cdef size_t mask = 8 * PyByteArray_GET_SIZE(bits) - 1
    cdef size_t salted = <size_t><Py_hash_t>salt
    cdef size_t place
    cdef unsigned char bit
    new, others = [], []
    for record in upserts:
        place = ((<size_t>hash(record.key)) ^ salted) & mask
        bit = 1 << (place & 7)
        if field[place >> 3] & bit:
            others.append(record)
        else:
            field[place >> 3] |= bit
            new.append(record)
    return new, others
