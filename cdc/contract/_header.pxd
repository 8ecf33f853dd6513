"""Headers in C, for the twins that make records: puts what ``HeaderStamp.around`` returns around an ordinal."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdio cimport snprintf
from libc.string cimport memcpy

cdef enum:
    _DIGITS = 24  # room for the longest number, 20 characters, and the zero byte after it


cdef inline bytes header(bytes before, long long seq, bytes after):
    cdef char[_DIGITS] digits
    cdef Py_ssize_t length = snprintf(digits, _DIGITS, b"%lld", seq)
    cdef Py_ssize_t first = PyBytes_GET_SIZE(before)
    cdef Py_ssize_t last = PyBytes_GET_SIZE(after)
    cdef bytes whole = PyBytes_FromStringAndSize(NULL, first + length + last)
    cdef char* to = PyBytes_AS_STRING(whole)
    memcpy(to, PyBytes_AS_STRING(before), first)
    memcpy(to + first, digits, length)
    memcpy(to + first + length, PyBytes_AS_STRING(after), last)
    return whole
