"""The page as text: whole, escaped, within its size, and nothing from elsewhere."""

import base64
import hashlib
import html
import json
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from capri.page import Report
from capri.page.content import Rung
from capri.page.words import objective_rows, sides, sureness


class Page(HTMLParser):
    """What a browser's parser sees: elements, their attributes, and what is in scripts and styles."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.inside, self.texts, self.within = [], {}, [], None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self.within = (tag, dict(attributes).get("type")) if tag in ("script", "style") else None

    def handle_endtag(self, tag):
        self.within = None

    def handle_data(self, text):
        if self.within:
            self.inside[self.within] = self.inside.get(self.within, "") + text
        else:
            self.texts.append(text)


def opened(content) -> Page:
    return Page(Report(content).to_html())


class TestHostileNames:
    def test_they_change_no_element_of_the_page(self, content_of, hostile):
        plain, hostile_page = opened(content_of(12)), opened(content_of(12, hostile))
        assert [tag for tag, _ in hostile_page.elements] == [tag for tag, _ in plain.elements]

    def test_every_name_is_in_the_data_as_it_is(self, content_of, hostile):
        page = opened(content_of(12, hostile))
        data = page.inside["script", "application/json"]
        assert json.loads(data)["classes"]["names"] == list(hostile)
        assert not re.search("[<>&\u2028\u2029]", data)

    def test_names_in_sentences_are_text(self, content_of, hostile):
        content = content_of(12, hostile, absent=[0])
        assert "<script>document" not in Report(content).to_html()
        assert "<script>document.title…" in "".join(opened(content).texts)

    def test_half_a_character_does_not_spoil_the_file(self, content_of, tmp_path):
        report = Report(content_of(3, ["half \ud83d a cat", "b", "c"]))
        report.save(tmp_path / "report.html")
        assert "half ? a cat" in (tmp_path / "report.html").read_text(encoding="utf-8")

    def test_everything_a_user_may_name_is_escaped(self, content_of):
        bad = "<b onclick=x>"
        content = content_of(3, [bad] * 1)
        limits = [replace(content.views[0].limits[0], text=bad)]
        content = replace(
            content,
            objective="plain",
            headline=replace(content.headline, gain=bad, evidence=bad, sureness=bad, price=bad),
            views=[replace(content.views[0], limits=limits, before={bad: 0.1}, after={bad: 0.2})],
            classes=replace(content.classes, groups=[bad, bad, bad]),
            facts={bad: bad},
            notes=[bad],
            reason=bad,
            ladder=[Rung(bad, 0.1)],
            frontier={"of": bad, "against": bad, "kind": "test", "points": []},
        )
        page = opened(content)
        assert "b" not in [tag for tag, _ in page.elements]
        assert "".join(page.texts).count(bad) >= 9


class TestAlone:
    def test_it_refers_to_nothing_but_itself(self, content_of):
        page = opened(content_of(100))
        for tag, attributes in page.elements:
            assert "src" not in attributes
            assert tag not in ("link", "iframe", "object", "embed", "base", "form", "img")
            assert not any(name.startswith("on") or name == "style" for name in attributes)
            assert attributes.get("href", "#").startswith("#")
        style = page.inside["style", None]
        assert "url(" not in style
        assert "@import" not in style

    def test_its_policy_names_its_own_script_and_style_and_nothing_else(self, content_of):
        page = opened(content_of(3))
        (policy,) = [a["content"] for _, a in page.elements if a.get("http-equiv") == "Content-Security-Policy"]
        rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
        assert rules["default-src"] == "'none'"
        for kind, text in (("script-src", page.inside["script", None]), ("style-src", page.inside["style", None])):
            digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            assert rules[kind] == f"'sha256-{digest}'"
        assert set(rules) == {"default-src", "script-src", "style-src", "img-src", "base-uri", "form-action"}

    def test_the_policy_comes_before_what_it_governs(self, content_of):
        text = Report(content_of(3)).to_html()
        assert text.index("Content-Security-Policy") < text.index("<style>") < text.index("<script")


@pytest.mark.parametrize(("k", "limit"), [(1000, 1_500_000), (8142, 5_000_000)])
def test_it_stays_small(content_of, k, limit):
    content = content_of(k, ["a class with a name as names go in catalogues"] * 1)
    points = [{"value": 0.5, "price": 0.1, "errors": [0.123] * k}] * 21
    content = replace(content, frontier={"of": "cvar:0.2", "against": "plain", "kind": "test", "points": points})
    assert len(Report(content).to_html().encode()) < limit


class TestWithoutScript:
    """The first screen is text: it needs no script, and can be read aloud."""

    def test_it_answers_what_for_whom_who_pays_and_how_sure(self, content_of):
        text = html.unescape(
            re.sub(r"<[^>]+>", " ", Report(content_of(100, absent=[7])).to_html().split("<noscript>")[0])
        )
        for said in (
            "CVaR 0.2 falls from 90.0 % to 70.0 %",
            "90 % interval 10.0 to 20.0",
            "What changed",
            "Who gains",
            "Who pays",
            "How sure",
            "1 class (\u2068class 7\u2069) without any sample",
            "Constraints: all kept here.",
        ):
            assert said in text

    def test_who_gains_and_who_pays_are_ranked_with_clear_changes_first(self, content_of):
        content = content_of(60, kinds=("test",))
        view = content.views[0]
        change = [b - a for a, b in zip(view.first.values, view.second.values, strict=True)]
        gain, pay = sides(content)
        assert gain.count == sum(c < 0 for c in change)
        assert pay.count == sum(c > 0 for c in change)
        assert gain.clear == sum(c < 0 and clear for c, clear in zip(change, view.clear, strict=True))
        best = min((c, k) for k, c in enumerate(change) if view.clear[k])
        assert gain.first[0].name == content.classes.names[best[1]]

    def test_out_of_fold_the_tuned_objective_is_the_estimate_of_the_headline(self, content_of):
        content = content_of(10, kinds=("out of fold",))  # gains 0.2 of 0.9 by the ladder
        row = objective_rows(content)[0]
        assert (row.tuned, row.before, row.after, row.change) == (True, "90.0", "70.0", "−20.0")
        counted = replace(content, ladder=[Rung("tuned", 0.15)])
        assert objective_rows(counted)[0].after == "75.0"
        assert any("Counted, CVaR 0.2 comes to 70.0 %" in line for line in sureness(counted))

    def test_how_much_is_decided_is_said_with_the_errors(self, content_of, abstaining_of):
        content = abstaining_of(content_of(10))
        assert objective_rows(content)[-1].after == "95.0"
        assert "95.0 % of them are decided, 50.0 % or more of each class: errors after are of these." in sureness(
            content
        )
        assert [side.clear for side in sides(content)] == [None, None]
        first = replace(content.views[0], decided=[0.0] + [1.0] * 9)
        told = sureness(replace(content, views=[first]))
        assert "1 class (\u2068class 0\u2069) of which nothing is decided: they are left out of figures after." in told
        text = Report(content).to_html()
        assert "capri fold" not in text
        assert "and every sample is decided" in text

    def test_thin_classes_are_named(self, content_of):
        content = content_of(6)
        view = replace(content.views[0], samples=[50, 50, 3, 50, 4, 0])
        said = sureness(replace(content, views=[view]))
        assert "2 classes (\u2068class 2\u2069, \u2068class 4\u2069) with fewer than 5 samples" in "".join(said)


class TestReport:
    def test_saving_is_atomic_and_whole(self, content_of, tmp_path):
        Report(content_of(3)).save(tmp_path / "folder" / "report.html")
        assert [path.name for path in (tmp_path / "folder").iterdir()] == ["report.html"]
        assert (tmp_path / "folder" / "report.html").read_text(encoding="utf-8").endswith("</html>")

    def test_a_notebook_gets_a_frame_without_rights(self, content_of):
        report = Report(content_of(3))
        ((_, attributes),) = [e for e in Page(report._repr_html_()).elements if e[0] == "iframe"]
        assert attributes["srcdoc"] == report.to_html()
        assert attributes["sandbox"] == "allow-scripts"
        assert attributes["title"]

    def test_it_is_called_by_its_headline(self, content_of):
        report = Report(content_of(3))
        assert str(report) == str(report.content.headline)
        assert repr(report).startswith("<Report: CVaR 0.2 falls")

    def test_equal_contents_make_equal_pages(self, content_of):
        assert Report(content_of(20)).to_html() == Report(content_of(20)).to_html()


def test_jinja_is_loaded_when_a_page_is_made_and_not_before():
    code = "import sys, capri, capri.posthoc, capri.page; print('jinja2' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_what_is_known_by_digest_survives_tools_that_strip_lines(content_of):
    page = Report(content_of(10)).to_html()
    stripped = "\n".join(line.rstrip() for line in page.split("\n"))
    for tag in ("script", "style"):
        whole, left = (re.findall(f"<{tag}>.*?</{tag}>", text, re.DOTALL) for text in (page, stripped))
        assert whole == left != []
