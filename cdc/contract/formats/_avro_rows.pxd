"""What other modules for values use from this one: dates, times and numbers, as texts and as integers; records."""

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
cdef bint _read_decimal(Cell cell, int scale, int64_t* number) noexcept nogil
cdef int _unscaled(int64_t number, unsigned char* raw) noexcept nogil
cdef bint _add_decimal(Buffer out, Cell cell, int precision, int scale) except -1
cdef bint _add_date(Buffer out, int64_t days, bint is_alone) except -1
cdef int _add_clock(Buffer out, int64_t micros) except -1
cdef bint _add_zoned(Buffer out, Cell cell, int places) except -1
cdef bint _add_unzoned(Buffer out, Cell cell) except -1
cdef int _add_varint(Buffer out, int64_t number) except -1
cdef const unsigned char* _read_varint(
    const unsigned char* at, const unsigned char* end, int64_t* number
) noexcept nogil
cdef const unsigned char* _read_counted(
    const unsigned char* at, const unsigned char* end, Cell* cell
) noexcept nogil


cdef class ValueReader:
    cdef tuple _labels
    cdef bytes _kinds
    cdef tuple _nulls
    cdef tuple _branches
    cdef tuple _sizes
    cdef tuple _scales
    cdef tuple _readers

    cdef const unsigned char* read(self, Buffer out, bytes value, const unsigned char* at) except? NULL
    cdef const unsigned char* _read_in_python(self, Buffer out, bytes value, Py_ssize_t place, Py_ssize_t column)
