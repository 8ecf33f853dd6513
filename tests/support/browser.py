"""The browser of this machine, without a window: pages are looked at as their readers see them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

_NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_browser() -> str:
    """Path of a Chromium: ``CDC_TEST_BROWSER``, else the first on the PATH."""
    named = os.environ.get("CDC_TEST_BROWSER")
    if named:
        assert shutil.which(named), f"CDC_TEST_BROWSER names {named}, which is no program"
        return named
    found = next((path for name in _NAMES if (path := shutil.which(name))), None)
    assert found, (
        f"no browser: none of {', '.join(_NAMES)} is on the PATH. "
        "Install Debian's package chromium, or name a Chromium in CDC_TEST_BROWSER"
    )
    return found


@contextmanager
def open_browser() -> Iterator[Browser]:
    """A running Chromium; ends with the block."""
    # Its sandbox does not start for root, who runs tests in containers; the pages are our own.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=arguments)
        try:
            yield browser
        finally:
            browser.close()
