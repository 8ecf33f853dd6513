"""The reconciliation page as its readers see it: a real browser, desktop and phone, light and dark, no network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, Page

from cdc.spark.report.html import as_html
from cdc.spark.report.model import Report
from cdc.spark.report.redact import redacted
from tests.support import reports
from tests.support.browser import open_browser

REPORTS: dict[str, Callable[[], Report]] = {
    "mixed": reports.mixed,
    "identical": reports.all_identical,
    "single": lambda: reports.report(reports.different_table()),
    "redacted": lambda: redacted(reports.mixed()),
    "hostile": reports.hostile,
}
DESKTOP, PHONE = (1280, 900), (390, 844)
# WCAG 2 AA, for text of ordinary size.
LEAST_CONTRAST = 4.5

# Colours as the browser computed them; a see-through background lets the next one behind show.
CONTRASTS = """
() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const seen = {};
  const rgb = (text) => {
    if (!(text in seen)) {
      canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1);
      seen[text] = [...canvas.getImageData(0, 0, 1, 1).data];
    }
    return seen[text];
  };
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (node) => {
    for (let each = node; each; each = each.parentElement) {
      const colour = rgb(getComputedStyle(each).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return [255, 255, 255, 255];
  };
  const found = {};
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || ["SCRIPT", "TITLE"].includes(node.tagName.toUpperCase())) continue;
    if (!node.checkVisibility()) continue;
    const style = getComputedStyle(node);
    const colour = rgb(node instanceof SVGElement ? style.fill : style.color);
    const [a, b] = [light(colour), light(behind(node))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    const name = `${node.tagName}.${node.className.baseVal ?? node.className}`;
    if (!(found[name] <= ratio)) found[name] = ratio;
  }
  return found;
}
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as running:
        yield running


class Seen:
    """A page, and all that it said or asked for."""

    def __init__(self, page: Page, path: Path) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        page.goto(path.as_uri())

    def sideways(self) -> int:
        """Pixels by which the page is wider than its window."""
        width: int = self.page.evaluate(
            "Math.max(document.documentElement.scrollWidth, document.body.scrollWidth) - innerWidth"
        )
        return width


@pytest.fixture
def visit(browser: Browser, tmp_path: Path) -> Iterator[Callable[..., Seen]]:
    """Opens a report from the disk."""
    pages: list[Page] = []

    def visited(name: str, size: tuple[int, int], scheme: Literal["light", "dark"] = "light", **more: Any) -> Seen:
        path = tmp_path / f"{name}.html"
        path.write_text(as_html(REPORTS[name]()), encoding="utf-8")
        viewport: Any = {"width": size[0], "height": size[1]}
        pages.append(browser.new_page(viewport=viewport, color_scheme=scheme, **more))
        return Seen(pages[-1], path)

    yield visited
    for page in pages:
        page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("name", REPORTS)
def test_page(visit: Callable[..., Seen], tmp_path: Path, name: str, size: tuple[int, int], scheme: str) -> None:
    seen = visit(name, size, scheme)
    page = seen.page
    assert seen.sideways() <= 0
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true })")
    if (name, scheme) == ("mixed", "light"):  # for people; a picture takes longer than all the rest
        page.screenshot(path=tmp_path / f"{name}-{size[0]}.png", full_page=True)
    assert seen.sideways() <= 0
    poor = {where: round(ratio, 2) for where, ratio in page.evaluate(CONTRASTS).items() if ratio < LEAST_CONTRAST}
    assert poor == {}
    assert seen.complaints == []
    assert seen.requests == [(tmp_path / f"{name}.html").as_uri()]


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_the_verdict_is_seen_without_scrolling(visit: Callable[..., Seen], size: tuple[int, int]) -> None:
    for name, verdict, said in (
        ("mixed", "NOT VERIFIED", "1 of 5 tables differs, 1 could not be verified"),
        ("identical", "IDENTICAL", "All 3 tables are identical"),
        ("single", "DIFFERENT", "public.orders differs"),
    ):
        page = visit(name, size).page
        assert page.locator(".verdict").inner_text() == verdict
        heading = page.locator("h1")
        assert heading.inner_text() == said
        box = heading.bounding_box()
        assert box is not None
        assert box["y"] + box["height"] < size[1] / 3


def test_samples_are_seen_at_once(visit: Callable[..., Seen]) -> None:
    page = visit("single", PHONE).page
    sample = page.locator(".sample").first
    assert sample.is_visible()
    assert sample.locator(".differs").count() == 2
    assert sample.locator("mark").first.inner_text() == "paid"
    for said in ("118204", "0/18FF2A0", "812650", "2026-11-21 11:58:03 UTC", "stale version"):
        assert said in sample.inner_text()
    assert page.locator(".chart svg").count() == 3


def test_content_needs_no_script(visit: Callable[..., Seen]) -> None:
    page = visit("mixed", DESKTOP, java_script_enabled=False).page
    assert page.locator(".sample").first.is_visible()
    assert page.locator(".overview tbody tr").count() == 5
    # A filter that cannot filter is not shown.
    assert not page.locator("#find").is_visible()
    page.locator("#t2 > summary").click()
    assert page.locator("#t2 .bars").first.is_visible()


def test_tables_can_be_found_and_opened(visit: Callable[..., Seen]) -> None:
    page = visit("mixed", DESKTOP).page
    page.locator("#bad").check()
    assert page.locator(".overview tbody tr:visible").count() == 2
    page.locator("#bad").uncheck()
    page.locator("#find").fill("INVOICE")
    assert page.locator(".overview tbody tr:visible").all_inner_texts()[0].split("\t")[1] == "sales.invoice_lines"
    assert page.locator("details.table:visible").count() == 1
    page.locator(".overview a:visible").click()
    assert page.locator("#t3 .bars").is_visible()


def test_no_value_can_run(visit: Callable[..., Seen]) -> None:
    seen = visit("hostile", DESKTOP)
    policy = seen.page.locator("meta[http-equiv='Content-Security-Policy']").get_attribute("content")
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert seen.page.locator("img").count() == 0
    # Were one to get through the escaping, the policy would stop it, loudly.
    seen.page.evaluate("document.body.insertAdjacentHTML('beforeend', '<b onclick=\"document.title=1\">x</b>')")
    seen.page.locator("body > b").click()
    assert any("Content Security Policy" in complaint for complaint in seen.complaints)
