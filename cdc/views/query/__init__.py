"""Questions about a view as HTTP spells them, and the answers: bytes, with what they are worth. No sockets.

``keys`` and ``parameters`` read questions, ``rows`` and ``watch`` answer them, ``evidence`` says what answers are
worth, and ``desk`` has what all of them need.
"""
