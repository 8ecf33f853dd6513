"""Golden data: bytes captured from real servers, and vectors of the topic contract for readers in any language."""
