"""The page in a real browser, as a person meets it. `make browser-tests` installs what it takes."""

import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from capri.page import Report

playwright = pytest.importorskip("playwright.sync_api", reason="no Playwright here; `make browser-tests` installs it")
expect = playwright.expect
BROWSER = shutil.which(os.environ.get("CHROMIUM", "chromium"))
if BROWSER is None:
    pytest.skip("no Chromium here; `make browser-tests` installs it", allow_module_level=True)

AXE = Path(__file__).parents[2] / ".venv" / "axe" / "package" / "axe.min.js"
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WIDE, NARROW = {"width": 1280, "height": 800}, {"width": 400, "height": 800}


class Visit:
    """A page, and what went wrong on it."""

    def __init__(self, page):
        self.page, self.complaints = page, []
        page.on("console", lambda said: self.complaints.append(f"{said.type}: {said.text}"))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}") or dialog.dismiss())
        page.on("request", lambda r: r.url.startswith("file:") or self.complaints.append(f"request: {r.url}"))

    def first_column(self):
        return self.page.locator("#classes-table tbody tr th").all_text_contents()

    def column(self, c):
        cells = self.page.locator(f"#classes-table tbody tr td:nth-child({c})").all_text_contents()
        return [float(text.replace("−", "-").replace(",", "").removeprefix("thin ")) for text in cells]


@pytest.fixture(scope="module")
def context(tmp_path_factory):
    with playwright.sync_playwright() as driver:
        made = driver.chromium.launch_persistent_context(
            tmp_path_factory.mktemp("profile"),
            executable_path=BROWSER,
            args=QUIET,
            offline=True,
            viewport=WIDE,
            reduced_motion="reduce",
        )
        yield made
        made.close()


@pytest.fixture
def visit(context, tmp_path):
    """`visit(content)` opens its report; at the end nobody may have complained, and nothing may have been asked for."""
    visits = []

    def opened(content, viewport=WIDE, colours="light"):
        Report(content).save(tmp_path / "report.html")
        seen = Visit(context.new_page())
        visits.append(seen)
        seen.page.set_viewport_size(viewport)
        seen.page.emulate_media(color_scheme=colours, reduced_motion="reduce")
        seen.page.goto((tmp_path / "report.html").as_uri())
        seen.page.wait_for_selector("html[data-ready]", timeout=20_000)
        return seen

    yield opened
    for seen in visits:
        seen.page.close()
        assert seen.complaints == []


@pytest.mark.parametrize("k", [2, 10, 100, 1000, 8142])
@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["wide", "narrow"])
def test_any_number_of_classes_opens_and_fits(visit, content_of, k, viewport):
    page = visit(content_of(k, absent=[k - 1]), viewport).page
    assert "CVaR 0.2 falls from 90.0 % to 70.0 %" in page.locator("h1").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
    assert page.locator("#classes-table tbody tr").count() == min(k, 25)
    assert page.locator("#classes-picture svg path").count() >= 3
    assert page.evaluate("document.querySelectorAll('*').length") < 4000  # however many classes


class TestHostileNames:
    def test_every_name_is_text(self, visit, content_of, hostile):
        seen = visit(content_of(len(hostile), hostile))
        shown = seen.page.locator("#classes-table tbody tr th bdi")
        full = {text for text in shown.all_text_contents() if "…" not in text}
        assert full == {name for name in hostile if len(name) <= 60}
        assert seen.page.title() == "CVaR 0.2 falls from 90.0 % to 70.0 % · capri report"
        assert seen.page.locator("img").count() == 0
        assert seen.page.locator("script").count() == 2

    def test_they_do_no_harm_anywhere_they_are_shown(self, visit, content_of, hostile):
        seen = visit(content_of(40, hostile))
        for y in (0.2, 0.5, 0.8):
            for host in ("#classes-picture svg", "#confusions-picture svg", "#offsets-difficulty svg"):
                seen.page.locator(host).hover(position={"x": 90 + 120 * y, "y": 180 * y})
        seen.page.locator("#offsets summary").click()
        expect(seen.page.locator("#offsets-table tbody tr")).to_have_count(25)  # filled once it is open

    def test_long_names_do_not_widen_the_page(self, visit, content_of):
        page = visit(content_of(10, ["W" * 200] * 1), NARROW).page
        assert page.evaluate("document.documentElement.scrollWidth") <= 400


class TestClasses:
    def test_sorting_by_any_heading_and_back(self, visit, content_of):
        seen = visit(content_of(100))
        heading = seen.page.get_by_role("button", name="before", exact=True).first
        heading.click()
        assert seen.column(4) == sorted(seen.column(4), reverse=True)
        assert seen.page.locator("#classes-table th[aria-sort]").get_attribute("aria-sort") == "descending"
        heading.click()
        assert seen.column(4) == sorted(seen.column(4))

    def test_searching_narrows_table_and_picture(self, visit, content_of):
        seen = visit(content_of(100))
        rows = seen.page.locator("#classes-table tbody tr")
        seen.page.get_by_label("Find").fill("CLASS 7")
        expect(rows).to_have_count(11)
        assert seen.first_column() == ["class 7", *(f"class {i}" for i in range(70, 80))]
        assert "Errors of 11 classes" in seen.page.locator("#classes-picture svg").get_attribute("aria-label")
        seen.page.get_by_label("Find").fill("no such class")
        expect(rows).to_have_count(0)
        assert "no class" in seen.page.locator("#classes-picture").inner_text()

    def test_a_group_by_itself(self, visit, content_of):
        seen = visit(content_of(100))
        seen.page.locator("#group").select_option(label="rare third: 33")
        assert seen.first_column()[0] == "class 67"
        assert "of 33 classes" in seen.page.locator("#classes-table .pager").inner_text()

    def test_turning_pages(self, visit, content_of):
        seen = visit(content_of(8142))
        pager = seen.page.locator("#classes-table .pager")
        pager.get_by_role("button", name="Next").click()
        assert seen.first_column()[0] == "class 25"
        assert "26–50 of 8,142 classes" in pager.inner_text()
        assert "each dot the mean of" in seen.page.locator("#classes-picture").text_content()

    def test_other_samples_have_other_figures(self, visit, content_of):
        content = content_of(10)
        seen = visit(content)
        shown = seen.column(4)
        seen.page.get_by_label("samples that tuned").check()
        assert seen.column(4) != shown
        wanted = [round(100 * e, 1) for e in content.views[1].first.values]
        assert seen.column(4) == pytest.approx(wanted)
        assert "on the bright side" in seen.page.locator("#view-note").inner_text()

    def test_a_class_without_samples_is_marked(self, visit, content_of):
        page = visit(content_of(10, absent=[3])).page
        cells = page.locator("#classes-table tbody tr").nth(3).locator("td").all_text_contents()
        assert cells[1:5] == ["none", "–", "–", "–"]
        assert "1 class (\u2068class 3\u2069) without any sample" in page.locator("#first").inner_text()

    def test_a_policy_that_abstains_tells_how_much_of_each_class_it_decides(self, visit, content_of, abstaining_of):
        page = visit(abstaining_of(content_of(10))).page
        shown = page.locator("#classes-table tbody tr").first.locator("td")
        expect(page.locator("#view-note")).to_contain_text("Errors after are of what is decided.")
        assert shown.nth(5).inner_text() == "50.0"
        page.locator("#classes-picture svg").hover(position={"x": 60, "y": 100})
        expect(page.locator("#tip")).to_contain_text("50.0 % of them decided")
        page.get_by_label("samples that tuned").check()
        expect(page.locator("#view-note")).to_contain_text("Every sample is decided here.")
        assert shown.nth(5).inner_text() == "–"

    def test_hovering_names_the_class_and_its_interval(self, visit, content_of):
        page = visit(content_of(10)).page
        page.locator("#classes-picture svg").hover(position={"x": 60, "y": 100})
        expect(page.locator("#tip")).to_contain_text(re.compile(r"^class 0before [\d.]+ % \([\d.]+ to [\d.]+\)"))


def test_multipliers_are_drawn_where_offsets_do_not_differ(visit, content_of):
    content = content_of(10)
    classes = replace(content.classes, offsets=[0.0] * 10, multipliers=[1 + k / 10 for k in range(10)], residual=None)
    page = visit(replace(content, classes=classes)).page
    assert "multiplier of the class" in page.locator("#offsets-frequency").inner_text()
    page.locator("#offsets summary").click()
    expect(page.locator("#offsets-table thead")).to_contain_text("multiplier")


class TestTradeoff:
    @pytest.fixture
    def seen(self, visit, content_of, frontier_of):
        content = content_of(10, kinds=("in sample", "test"))
        return visit(replace(content, frontier=frontier_of(content)))

    def test_the_slider_moves_the_errors_of_the_classes(self, seen):
        shown, slider = seen.column(5), seen.page.locator("#tradeoff-at")
        assert slider.input_value() == "2"  # the nearest to this policy
        slider.fill("4")
        assert seen.column(5) == [40.0] * 10
        assert "mean 40.0 %" in seen.page.locator("#classes-picture .key").inner_text()
        assert seen.page.locator("#tradeoff-readout").inner_text() == (
            "Point 5 of 5: CVaR 0.2 50.0 %, overall error 46.0 %"
        )
        assert seen.page.get_by_label("test samples").is_checked()
        seen.page.get_by_role("button", name="Back to this policy").click()
        seen.page.get_by_label("samples that tuned").check()
        assert seen.column(5) == shown

    def test_it_goes_by_the_arrow_keys_and_says_where_it_is(self, seen):
        slider = seen.page.locator("#tradeoff-at")
        slider.focus()
        seen.page.keyboard.press("ArrowLeft")
        assert slider.get_attribute("aria-valuetext").startswith("Point 2 of 5: CVaR 0.2 80.0 %")
        assert seen.column(5) == [10.0] * 10

    def test_other_samples_lead_back_to_the_policy(self, seen):
        seen.page.locator("#tradeoff-at").fill("0")
        seen.page.get_by_label("samples that tuned").check()
        assert seen.page.locator("#tradeoff-readout").inner_text().startswith("This policy: ")

    def test_its_table_has_all_figures(self, seen):
        seen.page.get_by_text("The trade-offs as a table").click()
        cells = seen.page.locator("#tradeoff tbody tr").nth(4).locator("td").all_text_contents()
        assert cells == ["46.0", "50.0"] * 3


class TestKeyboard:
    def test_the_arrow_keys_go_from_class_to_class(self, visit, content_of):
        page = visit(content_of(100)).page
        through = page.locator("#classes-picture [role=slider]")
        through.focus()
        for key in ("ArrowRight", "ArrowRight", "End", "ArrowLeft"):
            page.keyboard.press(key)
        assert through.get_attribute("aria-valuetext").startswith("class 98: before ")
        expect(page.locator("#tip")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.locator("#tip")).to_be_hidden()

    def test_everything_that_can_be_used_can_be_reached_and_is_seen(self, visit, content_of):
        page = visit(content_of(40)).page
        reached = set()
        for _ in range(80):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("document.activeElement.id || document.activeElement.textContent.slice(0, 12)"))
            outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none" or page.evaluate("document.activeElement === document.body")
        assert {"theme", "order", "group", "search", "confusions-what"} <= reached

    def test_sorting_by_the_keyboard(self, visit, content_of):
        seen = visit(content_of(30))
        seen.page.get_by_role("button", name="class", exact=True).first.focus()
        seen.page.keyboard.press("Enter")
        assert seen.first_column()[:3] == ["class 0", "class 1", "class 10"]


class TestLook:
    def test_dark_and_light_by_the_system_and_by_the_button(self, visit, content_of):
        page = visit(content_of(10), colours="dark").page
        paper = "getComputedStyle(document.body).backgroundColor"
        dark = page.evaluate(paper)
        page.get_by_role("button", name="Light").click()
        light = page.evaluate(paper)
        assert sum(map(int, re.findall(r"\d+", dark)[:3])) < 150 < 600 < sum(map(int, re.findall(r"\d+", light)[:3]))
        page.get_by_role("button", name="Dark").click()
        assert page.evaluate(paper) == dark

    def test_pictures_take_the_room_that_there_is(self, visit, content_of):
        page = visit(content_of(10)).page
        picture = page.locator("#classes-picture svg")
        page.set_viewport_size(NARROW)
        expect(picture).to_have_attribute("viewBox", re.compile(r"^0 0 3\d\d "))
        assert page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]

    def test_it_prints_in_light_colours_without_controls(self, visit, content_of):
        page = visit(content_of(100), colours="dark").page
        pdf = page.pdf(format="A4")
        assert pdf.startswith(b"%PDF")
        assert 2 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 9
        page.emulate_media(media="print", color_scheme="dark")
        assert page.locator("#theme").is_hidden()
        assert page.locator("#search").is_hidden()
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"

    @pytest.mark.parametrize("colours", ["light", "dark"])
    @pytest.mark.parametrize("k", [3, 100])
    def test_axe_finds_no_serious_violation(self, visit, content_of, frontier_of, colours, k):
        if not AXE.exists():
            pytest.skip("no axe-core here; `make browser-tests` fetches it")
        content = content_of(k)
        page = visit(replace(content, frontier=frontier_of(content)), colours=colours).page
        page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        expect(page.locator("#offsets-table tbody tr")).to_have_count(min(k, 25))  # filled once it is open
        page.evaluate(AXE.read_text(encoding="utf-8"))  # the page's own policy would forbid a script element
        found = json.loads(page.evaluate("axe.run().then(found => JSON.stringify(found.violations))"))
        told = {v["id"]: [n["html"][:200] for n in v["nodes"]] for v in found if v["impact"] in ("serious", "critical")}
        assert told == {}


def test_a_frame_in_a_notebook_works_alone(visit, context, content_of, tmp_path):
    notebook = f"<!doctype html><title>notebook</title><p>cell</p>{Report(content_of(10))._repr_html_()}"
    (tmp_path / "notebook.html").write_text(notebook, encoding="utf-8")
    seen = Visit(context.new_page())
    seen.page.goto((tmp_path / "notebook.html").as_uri())
    inside = seen.page.frame_locator("iframe")
    inside.locator("html[data-ready]").wait_for(timeout=20_000)
    inside.get_by_label("Find").fill("class 3")
    expect(inside.locator("#classes-table tbody tr")).to_have_count(1)
    assert [c for c in seen.complaints if not c.startswith("request: about:")] == []
    seen.page.close()


def test_the_policy_of_the_page_forbids_what_is_not_its_own(context, content_of, tmp_path):
    Report(content_of(3)).save(tmp_path / "report.html")
    page = context.new_page()
    page.goto((tmp_path / "report.html").as_uri())
    refused = page.evaluate(
        """async () => {
            const refused = [];
            document.addEventListener("securitypolicyviolation", (e) => refused.push(e.effectiveDirective));
            const add = (tag, attributes, text) => {
                const element = Object.assign(document.createElement(tag), attributes);
                if (text) element.textContent = text;
                document.body.append(element);
            };
            add("script", {}, "window.owned = true");
            add("img", { src: "https://example.org/x.png" });
            add("iframe", { src: "https://example.org/" });
            add("style", {}, "body { display: none }");
            document.body.setAttribute("onclick", "window.owned = true");
            await fetch("https://example.org/").catch(() => null);
            const kinds = () => new Set(refused).size;  // told when there is time for it
            for (let i = 0; i < 200 && kinds() < 6; i++) await new Promise((done) => setTimeout(done, 50));
            return [...new Set(refused), String(window.owned)];
        }"""
    )
    page.close()
    wanted = {
        "script-src-elem",
        "script-src-attr",
        "img-src",
        "frame-src",
        "style-src-elem",
        "connect-src",
        "undefined",
    }
    assert set(refused) == wanted
