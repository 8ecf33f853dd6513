# cython: boundscheck=False, wraparound=False
"""The twin of ``json_rows.py`` in C: converts JSON objects to lines of COPY text, byte for byte as Python does.

It converts *plain* rows, as the bridge writes them: members in the order of the columns, no blanks between them, no
``\\u`` escapes, no nested arrays, and values of the shape that their columns' types suggest. It declines all other rows
and leaves them to Python, errors included.

For readers who know Python: ``cdef`` declares what is C and cannot be called from Python. ``at`` is the address of a
byte, ``at[0]`` that byte, ``at + 1`` the next address, ``NULL`` no address. Each function takes ``at``, where to read,
and ``out``, which holds where to write and is advanced. It returns the address after what it read, or ``NULL`` if that
is not plain. No function counts how many bytes are left, for two reasons:

- CPython puts a NUL after all ``bytes``. No function accepts a NUL as plain, or reads past it.
- A byte of JSON becomes at most two of COPY text; a missing column becomes three. ``lines`` makes room for that.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.string cimport memcpy, strchr, strlen, strncmp
from posix.strings cimport strncasecmp

from cdc.base._source cimport CDC_SOURCE
from cdc.contract.formats._objects cimport Buffer, is_utf8

SOURCE = CDC_SOURCE

cdef enum:
    # The form of a column's values
    _INTEGER, _BARE, _STRING, _DOCUMENT, _STRINGS, _NUMBERS, _OTHER, _LEFT_OUT
    _DEPTH = 50  # the deepest nesting of a document that is plain
    _DIGITS = 19  # an integer with up to so many digits is printed as it was written

INTEGER, BARE, STRING, DOCUMENT = _INTEGER, _BARE, _STRING, _DOCUMENT
STRINGS, NUMBERS, OTHER, LEFT_OUT = _STRINGS, _NUMBERS, _OTHER, _LEFT_OUT

ctypedef const unsigned char* Place
ctypedef unsigned char* Target
ctypedef Place (*Reader)(Place, Target*) noexcept nogil


cdef class LineWriter:
    """Writes rows as lines.

    Args:
        names: names of the columns in the order of the lines, then of members to leave out, as JSON strings.
        forms: the form of each; ``LEFT_OUT`` for members to leave out.
    """

    cdef tuple _labels
    cdef bytes _forms
    cdef int _columns

    def __init__(self, names, forms):
        self._labels = tuple([name + b":" for name in names])
        self._forms = bytes(forms)
        self._columns = len(self._forms) - self._forms.count(_LEFT_OUT)
        if not self._columns or len(self._forms) != len(self._labels):
            raise ValueError("as many names as forms, and at least one column")

    def lines(self, sources, bint are_keys):
        """Returns the lines of plain rows, and the places of all others; a key with a NULL is not plain."""
        cdef Buffer lines = Buffer()
        cdef Py_ssize_t size
        cdef Target out
        cdef list declined = []
        for place, source in enumerate(sources):
            if type(source) is bytes:
                size = PyBytes_GET_SIZE(source)
                lines.reserve(2 * size + 3 * self._columns)
                out = lines.data + lines.size
                if self._write(<Place>PyBytes_AS_STRING(source), size, &out, not are_keys) and (
                    source.isascii() or is_utf8(<Place>PyBytes_AS_STRING(source), size)
                ):
                    lines.size = out - lines.data
                    continue
            declined.append(place)
        return lines.taken(), declined

    cdef bint _write(self, Place at, Py_ssize_t size, Target* out, bint has_nulls) except -1:
        cdef Place start = at
        cdef Target here
        cdef Py_ssize_t column = 0, member
        cdef int form
        if at[0] != b"{":
            return False
        while at[0] != b"}":
            member = self._member(at + 1, column)
            if member < 0:
                return False
            at += 1 + PyBytes_GET_SIZE(self._labels[member])
            form = (<const unsigned char*>PyBytes_AS_STRING(self._forms))[member]
            if form == _LEFT_OUT:
                here = out[0]
                at = _document(at, out, 0)
                out[0] = here
            else:
                if member > column and not has_nulls:
                    return False
                _nulls(member - column, out)
                column = member + 1
                at = _null(at, out) if at[0] == b"n" and has_nulls else _value(at, out, form)
                out[0][0] = b"\t"
                out[0] += 1
            if at == NULL or (at[0] != b"," and at[0] != b"}"):
                return False
        _nulls(self._columns - column, out)
        (out[0] - 1)[0] = b"\n"
        return at + 1 == start + size and (has_nulls or column == self._columns)

    cdef Py_ssize_t _member(self, Place at, Py_ssize_t column) except -2:
        """Returns which member begins here: the next column, a later one if the row is older than the columns, or -1.
        """
        cdef Py_ssize_t i
        cdef bytes label
        for i in range(column, len(self._labels)):
            label = <bytes>self._labels[i]
            if strncmp(<const char*>at, PyBytes_AS_STRING(label), PyBytes_GET_SIZE(label)) == 0:
                return i
        return -1


cdef void _nulls(Py_ssize_t count, Target* out) noexcept nogil:
    """Write NULL for columns that the row does not have."""
    for _ in range(count):
        memcpy(out[0], b"\\N\t", 3)
        out[0] += 3


cdef Place _null(Place at, Target* out) noexcept nogil:
    return _word(at, out, b"null", b"\\N")


cdef Place _value(Place at, Target* out, int form) noexcept nogil:
    if form == _INTEGER:
        return _integer(at, out)
    if form == _DOCUMENT:
        return _document(at, out, 0)
    if form == _OTHER:
        return NULL
    if at[0] == b'"':
        return _string(at, out)
    if form == _BARE:
        return _scalar(at, out)
    if form == _STRINGS and at[0] == b"[":
        return _array(at, out, _element)
    if form == _NUMBERS and at[0] == b"[":
        return _array(at, out, _scalar)
    return NULL


cdef Place _word(Place at, Target* out, const char* word, const char* text) noexcept nogil:
    if strncmp(<const char*>at, word, strlen(word)) != 0:
        return NULL
    memcpy(out[0], text, strlen(text))
    out[0] += strlen(text)
    return at + strlen(word)


cdef inline Place _byte(Place at, Target* out) noexcept nogil:
    out[0][0] = at[0]
    out[0] += 1
    return at + 1


cdef Place _digits(Place at, Target* out) noexcept nogil:
    """Read digits, at least one."""
    if not b"0" <= at[0] <= b"9":
        return NULL
    while b"0" <= at[0] <= b"9":
        at = _byte(at, out)
    return at


cdef Place _integer(Place at, Target* out) noexcept nogil:
    cdef Place first
    if at[0] == b"0":
        return _byte(at, out)
    if at[0] == b"-":
        at = _byte(at, out)
    if at[0] == b"0":  # -0 is printed as 0, so it is not plain
        return NULL
    first = at
    at = _digits(at, out)
    return at if at != NULL and at - first <= _DIGITS else NULL


cdef Place _scalar(Place at, Target* out) noexcept nogil:
    """Copy a number or a word unchanged."""
    if at[0] == b"t":
        return _word(at, out, b"true", b"true")
    if at[0] == b"f":
        return _word(at, out, b"false", b"false")
    if at[0] == b"-":
        at = _byte(at, out)
    at = _byte(at, out) if at[0] == b"0" else _digits(at, out)
    if at != NULL and at[0] == b".":
        at = _digits(_byte(at, out), out)
    if at != NULL and (at[0] == b"e" or at[0] == b"E"):
        at = _byte(at, out)
        at = _digits(_byte(at, out) if at[0] == b"+" or at[0] == b"-" else at, out)
    return at


cdef Place _string(Place at, Target* out) noexcept nogil:
    """Copy the characters of a string. COPY text escapes backslash, tab and line ends as JSON does."""
    cdef Target to = out[0]
    at += 1
    while at[0] != b'"':
        if at[0] < 0x20:
            return NULL
        if at[0] == b"\\":
            at += 1
            if at[0] == b"\\" or at[0] == b"n" or at[0] == b"r" or at[0] == b"t":
                to[0] = b"\\"
                to += 1
            elif at[0] != b'"' and at[0] != b"/":
                return NULL
        to[0] = at[0]
        to += 1
        at += 1
    out[0] = to
    return at + 1


cdef Place _element(Place at, Target* out) noexcept nogil:
    """Copy a string as ``array_out`` prints it: in quotes if it needs them."""
    cdef Place first = at + 1
    cdef bint is_quoted = at[1] == b'"'
    if at[0] != b'"':
        return NULL
    at = first
    while at[0] != b'"':
        if at[0] < 0x20 or at[0] == b"\\":
            return NULL
        is_quoted |= at[0] == b" " or at[0] == b"," or at[0] == b"{" or at[0] == b"}"
        at += 1
    is_quoted |= at - first == 4 and strncasecmp(<const char*>first, b"null", 4) == 0
    memcpy(out[0], first - is_quoted, at - first + 2 * is_quoted)
    out[0] += at - first + 2 * is_quoted
    return at + 1


cdef Place _array(Place at, Target* out, Reader element) noexcept nogil:
    """Write an array without nested arrays as an array literal."""
    out[0][0] = b"{"
    out[0] += 1
    at += 1
    while at[0] != b"]":
        at = _word(at, out, b"null", b"NULL") if at[0] == b"n" else element(at, out)
        if at == NULL or (at[0] != b"]" and (at[0] != b"," or at[1] == b"]")):
            return NULL
        if at[0] == b",":
            at = _byte(at, out)
    out[0][0] = b"}"
    out[0] += 1
    return at + 1


cdef Place _document(Place at, Target* out, int depth) noexcept nogil:
    """Copy a document unchanged."""
    cdef unsigned char closing
    if at[0] == b'"':
        return _quoted(at, out)
    if at[0] == b"n":
        return _word(at, out, b"null", b"null")
    if at[0] != b"{" and at[0] != b"[":
        return _scalar(at, out)
    if depth == _DEPTH:
        return NULL
    closing = b"}" if at[0] == b"{" else b"]"
    at = _blanks(_byte(at, out), out)
    if at[0] == closing:
        return _byte(at, out)
    while True:
        if closing == b"}":
            at = _blanks(_quoted(at, out), out)
            if at == NULL or at[0] != b":":
                return NULL
            at = _blanks(_byte(at, out), out)
        at = _blanks(_document(at, out, depth + 1), out)
        if at == NULL or (at[0] != b"," and at[0] != closing):
            return NULL
        if at[0] == closing:
            return _byte(at, out)
        at = _blanks(_byte(at, out), out)


cdef Place _quoted(Place at, Target* out) noexcept nogil:
    """Copy a string in a document, with its backslashes doubled."""
    if at[0] != b'"':
        return NULL
    at = _byte(at, out)
    while at[0] != b'"':
        if at[0] < 0x20:
            return NULL
        if at[0] == b"\\":
            at = _doubled(at, out)
            if at[0] == 0 or strchr(b'"\\/bfnrt', at[0]) == NULL:
                return NULL
        at = _doubled(at, out) if at[0] == b"\\" else _byte(at, out)
    return _byte(at, out)


cdef inline Place _doubled(Place at, Target* out) noexcept nogil:
    _byte(at, out)
    return _byte(at, out)


cdef Place _blanks(Place at, Target* out) noexcept nogil:
    while at != NULL and (at[0] == b" " or at[0] == b"\n" or at[0] == b"\r" or at[0] == b"\t"):
        if at[0] != b" ":
            out[0][0] = b"\\"
            out[0][1] = b"n" if at[0] == b"\n" else (b"r" if at[0] == b"\r" else b"t")
            out[0] += 2
            at += 1
        else:
            at = _byte(at, out)
    return at
