"""What the module for Protobuf uses from this one: dates, times and numbers, as texts and as integers."""

from libc.stdint cimport int64_t

from cdc.contract.formats._objects cimport Buffer, Cell

cdef int64_t _DAY

cdef bint _digits(const unsigned char* at, Py_ssize_t count, int64_t* number) noexcept nogil
cdef bint _read_date(const unsigned char* at, int64_t* days) noexcept nogil
cdef bint _read_time(const unsigned char* at, Py_ssize_t length, int64_t* micros) noexcept nogil
cdef bint _write_double(Buffer out, Cell cell) except -1
cdef int _add_number(Buffer out, int64_t number) except -1
cdef bint _add_timestamp(Buffer out, int64_t micros, bint has_zone) except -1
cdef int _add_binary(Buffer out, Cell cell) except -1
cdef int _hex_digit(unsigned char digit) noexcept nogil
