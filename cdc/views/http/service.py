"""``cdc serve`` put together: from a configuration to processes that answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, TypeAlias

from cdc.base.config import Config
from cdc.base.daemon.pages import Pages as DaemonPages
from cdc.base.web.certificate import Certificate
from cdc.base.web.tokens import Tokens
from cdc.views.http.application import Service
from cdc.views.http.beside import Beside
from cdc.views.http.http import Server
from cdc.views.http.pages import Pages
from cdc.views.http.published import PublishedMetrics
from cdc.views.http.tally import Tally
from cdc.views.query.desk import Desk, Served
from cdc.views.query.past import Past

_REFRESH_S: Final = 2
"""Between two looks at the file of tokens, and at the certificate."""


OpenPages: TypeAlias = Callable[[Config, Callable[[], bytes]], AbstractContextManager[DaemonPages]]
"""Makes pages that are shown beside the service's own, of the configuration and of what ``/metrics`` says."""


def make_server(
    config: Config,
    served: Served,
    tally: Tally,
    more_metrics: Callable[[], bytes],
    open_pages: OpenPages | None = None,
) -> Server:
    """A server for the event loop that runs now.

    Args:
        config: of the whole deployment; histories are read with it.
        served: what is asked.
        tally: of this process.
        more_metrics: what ``/metrics`` shows beside its own, as Prometheus reads it.
        open_pages: what is shown at ``/``.

    Raises:
        ConfigError: the file of tokens is wrong.
    """
    settings = config.serve
    tokens = Tokens(None if settings.tokens_file is None else Path(settings.tokens_file))
    desk = Desk(served, tokens, settings)
    stopping = asyncio.Event()
    published = PublishedMetrics(tally, more_metrics)
    service = Service(desk, Pages(desk, Past(config), published, stopping), tally)
    app = service.app()
    if open_pages is not None:
        views = [part.view for part in desk.parts]
        app = Beside(app, open_pages(config, lambda: published.page(views).body), stopping)

    has_tls = settings.tls_cert is not None and settings.tls_key is not None
    certificate = Certificate(settings.tls_cert or "", settings.tls_key or "") if has_tls else None

    async def refresh() -> None:
        tokens.refresh()
        if certificate is not None and (context := server.config.ssl) is not None:
            certificate.refresh(context)

    server = Server(app, service.at_once, settings, stopping, refresh, _REFRESH_S)
    return server
