# cython: boundscheck=False, wraparound=False
"""The twin of ``Hiding`` in C: gives a writer what may leave of a row, and nothing else of it.

The masks are Python's own functions, called with the text of one value. So a hash and a cut text have one definition.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdlib cimport calloc, free

from cdc.base._source cimport CDC_SOURCE
from cdc.contract.formats._objects cimport Buffer, Cell, RowWriter

SOURCE = CDC_SOURCE


cdef class ShownRowWriter(RowWriter):
    """Writes rows of a relation without what is hidden of them.

    Args:
        writer: writes rows as they are published.
        width: how many columns the relation has.
        cells: for each published column, its place in the relation, and the function that masks its values or None.
    """

    cdef RowWriter _writer
    cdef tuple _places
    cdef tuple _masks
    cdef list _masked
    cdef Cell* _shown

    def __cinit__(self, RowWriter writer not None, Py_ssize_t width, cells):
        self._writer = writer
        self.width = width
        self._places = tuple([int(place) for place, _ in cells])
        self._masks = tuple([mask for _, mask in cells])
        if len(self._places) != writer.width or not all([0 <= place < width for place in self._places]):
            raise ValueError("as many places as the writer has columns, each of the relation")
        self._masked = [None] * len(self._places)
        self._shown = <Cell*>calloc(len(self._places), sizeof(Cell))
        if self._shown == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self._shown)

    cdef bint write(self, Buffer out, const Cell* cells) except -1:
        cdef Py_ssize_t i
        cdef Cell cell
        cdef bytes text
        for i in range(self._writer.width):
            cell = cells[<Py_ssize_t>self._places[i]]
            mask = self._masks[i]
            if mask is not None and cell.start != NULL:
                try:
                    text = mask(PyBytes_FromStringAndSize(<const char*>cell.start, cell.length))
                except UnicodeDecodeError:  # declined: Python masks it again, and raises it
                    return False
                self._masked[i] = text  # keeps alive what the cell points to
                cell.start = NULL if text is None else <const unsigned char*>PyBytes_AS_STRING(text)
                cell.length = 0 if text is None else PyBytes_GET_SIZE(text)
            self._shown[i] = cell
        return self._writer.write(out, self._shown)
