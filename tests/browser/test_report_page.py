"""``report.html`` as a person opens it: a real Chromium, offline, on a wide screen, a phone and paper."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, sync_playwright

from sealsum.demo.picture import draw
from sealsum.demo.report import render_report
from sealsum.demo.results import RefusalRow, Verdict
from tests.unit.demo.example import example_result

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WIDE, PHONE = (1280, 900), (400, 800)
ACCEPTED = Verdict(0, ("1 ✓ canonical ZIP", "2 ✓ manifest"))
REJECTED = Verdict(5, ("1 ✗ manifest.json: its digest is another",))
REFUSED = (RefusalRow(3, "hungary", "budget.job", "The job's cap would be passed."),)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.e2e,
    pytest.mark.skipif(CHROMIUM is None, reason="needs a Chromium (apt-get install chromium)"),
]


@dataclass
class Visit:
    """An opened page, and everything it said or asked for."""

    page: Page
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def resize(self, size: tuple[int, int]) -> None:
        self.page.set_viewport_size({"width": size[0], "height": size[1]})


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserContext]:
    """Offline, with a new empty profile. The sandbox needs an account that is not root."""
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            tmp_path_factory.mktemp("profile"),
            executable_path=CHROMIUM,
            headless=True,
            chromium_sandbox=False,
            args=list(FLAGS),
            offline=True,
        )
        try:
            yield context
        finally:
            context.close()


def visit(browser: BrowserContext, path: Path, html: bytes) -> Visit:
    """Write a page and open it from disk, noting console, errors and requests from its first byte on."""
    path.write_bytes(html)
    page = browser.new_page()
    seen = Visit(page)
    page.on("request", lambda request: seen.requests.append(request.url))
    page.on("console", lambda message: seen.complaints.append(message.text))
    page.on("pageerror", lambda error: seen.complaints.append(str(error)))
    page.goto(path.as_uri(), wait_until="load")
    page.wait_for_load_state("networkidle")
    return seen


@pytest.fixture
def opened(browser: BrowserContext, tmp_path: Path) -> Iterator[Visit]:
    result = example_result(refusals=REFUSED)
    seen = visit(browser, tmp_path / "report.html", render_report(result, draw(result), ACCEPTED))
    yield seen
    seen.page.close()


def test_the_page_asks_for_nothing_but_itself_and_the_console_stays_empty(
    opened: Visit, tmp_path: Path
) -> None:
    for size in (WIDE, PHONE):
        opened.resize(size)
    opened.page.emulate_media(media="print")
    assert opened.requests == [(tmp_path / "report.html").as_uri()]
    assert opened.complaints == []


def test_a_request_or_a_script_that_somebody_adds_is_stopped_and_noticed(
    browser: BrowserContext, tmp_path: Path
) -> None:
    """The page's own policy stops both, and what the tests above rely on hears of both."""
    result = example_result()
    html = render_report(result, draw(result), ACCEPTED).decode()
    bad = '<img src="https://example.org/pixel.png" alt=""><script>document.title = "owned"</script>'
    seen = visit(browser, tmp_path / "bad.html", html.replace("</main>", bad + "</main>").encode())
    assert "Content Security Policy" in " ".join(seen.complaints)
    assert len(seen.complaints) >= 2
    assert seen.page.title() != "owned"
    seen.page.close()


def test_verdict_claim_and_table_can_be_seen(opened: Visit) -> None:
    page = opened.page
    opened.resize(WIDE)
    strip = page.get_by_role("list", name="Verdict")
    assert strip.get_by_text("✓ verified").is_visible()
    assert page.locator("blockquote").is_visible()
    table = page.get_by_role("table").first
    assert table.is_visible()
    assert [row.strip() for row in table.locator("tbody th").all_inner_texts()][-1] == "all held-out patients"
    assert len(table.locator("tbody tr").all()) == 5
    assert page.get_by_text("budget.job").is_visible()


def test_a_pack_that_was_rejected_never_looks_verified(browser: BrowserContext, tmp_path: Path) -> None:
    result = example_result()
    seen = visit(browser, tmp_path / "bad.html", render_report(result, draw(result), REJECTED))
    assert seen.page.get_by_text("✗ not verified").is_visible()
    assert seen.page.get_by_text("✓ verified").count() == 0
    seen.page.close()


def test_every_image_has_a_text_for_those_who_cannot_see_it(opened: Visit) -> None:
    tree = opened.page.context.new_cdp_session(opened.page).send("Accessibility.getFullAXTree")
    spoken = [node for node in tree["nodes"] if not node["ignored"]]
    names = [node["name"]["value"] for node in spoken if node["role"]["value"] in ("image", "img")]
    assert len(names) == 2
    assert all(len(name) > 40 for name in names), names
    # A caption beside a picture is read too, which one inside an image's role would not be.
    captions = " ".join(node["name"]["value"] for node in spoken if node["role"]["value"] == "StaticText")
    assert "trained by one hospital alone" in captions
    assert opened.page.locator("img, svg image, canvas").count() == 0


def test_both_pictures_are_drawn(opened: Visit) -> None:
    opened.resize(WIDE)
    for picture in opened.page.locator("figure svg").all():
        box = picture.bounding_box()
        assert box is not None
        assert box["width"] > 600
        assert box["height"] > 150


@pytest.mark.parametrize("width", [320, PHONE[0], WIDE[0]])
def test_no_width_makes_the_page_scroll_sideways(opened: Visit, width: int) -> None:
    opened.resize((width, 800))
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    # Wide tables scroll in their own frame, and are reached whole there.
    frame = opened.page.locator(".scroll").first
    assert frame.evaluate("frame => frame.getBoundingClientRect().right") <= width


def test_on_paper_the_page_has_no_frame_and_every_section(opened: Visit) -> None:
    page = opened.page
    page.emulate_media(media="print")
    main = page.locator("main")
    assert main.evaluate("main => getComputedStyle(main).borderTopWidth") == "0px"
    assert page.locator("body").evaluate("body => getComputedStyle(body).backgroundColor") == (
        "rgb(255, 255, 255)"
    )
    assert all(heading.is_visible() for heading in page.locator("h2").all())
    pdf = page.pdf(format="A4", print_background=True)
    assert pdf.startswith(b"%PDF-")
    assert len(pdf) > 20_000
