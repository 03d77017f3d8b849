"""A pack's report as a person opens it: offline, wide, on a phone, in the dark and on paper."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from sealsum.report.html import html_report
from tests.unit.sealsum.test_report import VERIFIED, document

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.e2e,
    pytest.mark.skipif(CHROMIUM is None, reason="needs a Chromium (apt-get install chromium)"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The sandbox needs an account that is not root."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=CHROMIUM, chromium_sandbox=False, args=["--disable-gpu"]
        )
        yield chromium
        chromium.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 400, 1280])
def test_the_page_fits_every_width_asks_for_nothing_and_does_not_complain(
    browser: Browser, tmp_path: Path, width: int, scheme: str
) -> None:
    path = tmp_path / "report.html"
    path.write_bytes(html_report(document(VERIFIED)))
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
    requests: list[str] = []
    complaints: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.goto(path.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.get_by_role("list", name="Verdict").get_by_text("✓ Verified").is_visible()
    assert page.locator("blockquote").is_visible()
    assert all(heading.is_visible() for heading in page.locator("h2").all())
    assert all(len(figure.get_attribute("aria-label") or "") > 40 for figure in page.locator("svg").all())
    page.emulate_media(media="print")
    assert page.locator("nav").is_hidden()
    assert (requests, complaints) == ([path.as_uri()], [])
    page.close()
