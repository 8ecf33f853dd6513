"""The hash of a module's source when it was built, which ``setup.py`` gives to the C compiler."""

cdef extern from *:
    """
    #ifndef CDC_SOURCE
    #define CDC_SOURCE ""
    #endif
    """
    const char* CDC_SOURCE
