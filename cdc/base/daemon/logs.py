"""Sets up logging: readable lines on a terminal, JSON lines otherwise, libraries' lines included, and no secrets.

Logs go to standard error; standard output is for a command's result.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import traceback
from collections.abc import Iterable, Mapping, MutableMapping
from types import TracebackType
from typing import Any, TextIO
from urllib.parse import quote

import structlog

from cdc.base.config.masking import MASK

_LIBRARY_LEVEL = logging.WARNING


def configure(level: str = "info", secrets: Iterable[str] = (), *, stream: TextIO | None = None) -> None:
    """Set up logging for this process; a second call replaces the first.

    Args:
        level: ``debug``, ``info``, ``warning`` or ``error``, for this project's loggers; libraries start at warning.
        secrets: texts to replace by ``********`` wherever they appear, in tracebacks as well.
        stream: where to log; standard error by default.
    """
    out = sys.stderr if stream is None else stream
    terminal = out.isatty()
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="%H:%M:%S" if terminal else "iso", utc=not terminal),
        structlog.processors.StackInfoRenderer(),
    ]
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.ExtraAdder(), *shared],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_rendering(terminal),
                _Hide(secrets),
            ],
        )
    )
    logging.basicConfig(handlers=[handler], level=_LIBRARY_LEVEL, force=True)
    logging.getLogger("cdc").setLevel(level.upper())
    logging.captureWarnings(True)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        # Modules make their loggers on import, before this runs, and must get this configuration.
        cache_logger_on_first_use=False,
    )


def hide(secrets: Iterable[str]) -> None:
    """Set the secrets that ``hidden`` and ``guard_tracebacks`` replace; earlier ones no longer count."""
    global _hide
    _hide = _Hide(secrets)


def hidden(text: str) -> str:
    """Returns the text without the secrets that ``hide`` was given."""
    return _hide(None, "", text)


def keep_broker_lines_to_the_log() -> None:
    """Keep librdkafka's lines about brokers off the screen of a command without a log: its error has the reason.

    Python prints a warning on standard error if no handler takes it; the handler here takes it. Logs still get it.
    """
    logger = logging.getLogger("cdc.kafka")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())


def guard_tracebacks() -> None:
    """Print tracebacks of uncaught errors, which are bugs in cdc, without secrets. The entry point calls it."""

    def tell(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
        sys.stderr.write(hidden("".join(traceback.format_exception(kind, error, trace))))

    sys.excepthook = tell
    threading.excepthook = lambda args: tell(args.exc_type, args.exc_value, args.exc_traceback)


def _rendering(terminal: bool) -> list[structlog.typing.Processor]:
    if terminal:
        # The default traceback style would show local variables, and with them secrets.
        return [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
    return [
        structlog.processors.EventRenamer("message"),
        structlog.processors.format_exc_info,
        structlog.processors.JSONRenderer(ensure_ascii=False, default=str),
    ]


class _Hide:
    """The last processor: it gets the finished line, so that nothing is added after secrets were replaced."""

    def __init__(self, secrets: Iterable[str]) -> None:
        forms: set[str] = set()
        for secret in secrets:
            escaped = (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1])
            forms |= {secret, *escaped, quote(secret, safe="")}
        self._forms = sorted(forms - {""}, key=len, reverse=True)

    def __call__(self, _logger: Any, _method: str, line: str | MutableMapping[str, Any] | Mapping[str, Any]) -> str:
        text = str(line)
        for form in self._forms:
            text = text.replace(form, MASK)
        return text


_hide = _Hide(())
