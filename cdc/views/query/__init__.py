"""Questions about a view as HTTP spells them, and the answers: bytes, with what they are worth. No sockets."""
