"""What the module for envelopes uses from this one: where JSON's values end, and rows in Debezium's form."""

from cdc.contract.formats._objects cimport Buffer

cdef const unsigned char* value_end(const unsigned char* at, int depth) noexcept nogil
cdef const unsigned char* after_text(const unsigned char* at, bytes text) noexcept


cdef class EventRowReader:
    cdef tuple _labels
    cdef bytes _forms
    cdef tuple _parameters
    cdef tuple _readers
    cdef Buffer _raw

    cdef const unsigned char* read(self, Buffer out, const unsigned char* at) except? NULL
    cdef bint _read_form(self, Buffer out, Py_ssize_t place, const unsigned char* at, Py_ssize_t length) except -1
    cdef bint _read_in_python(self, Buffer out, Py_ssize_t place, const unsigned char* at, Py_ssize_t length) except -1
