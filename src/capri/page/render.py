"""From content to a page: Jinja2 with everything escaped, and a policy that forbids the page all but its own script."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from capri._version import __version__
from capri.page import words
from capri.page.content import Content
from capri.sentences import called, meaning

if TYPE_CHECKING:
    from jinja2 import Environment


def render(content: Content) -> str:
    """The page.

    Parameters
    ----------
    content : Content
        What it says.

    Returns
    -------
    str
        HTML, complete in itself.
    """
    from markupsafe import Markup

    style, script = _own("page.css"), _own("page.js")
    view, page = content.views[0], _templates().get_template("page.html")
    text = page.render(
        content=content,
        view=view,
        evidence=words.evidence(content),
        objectives=words.objective_rows(content),
        movers=words.sides(content),
        sureness=words.sureness(content),
        limits=words.limit_rows(content),
        kinds=words.KINDS,
        rungs=words.RUNGS,
        line_thinned=content.line is not None and len(content.line["low"]) < content.line["n_plateaus"],
        name_of=called,
        called=called(content.objective),
        meaning=meaning(content.objective),
        version=__version__,
        style=Markup(style),  # ours, not a user's
        script=Markup(script),
        style_hash=_digest(style),
        script_hash=_digest(script),
        data=Markup(as_data(content)),
    )
    return text.encode("utf-8", "replace").decode()  # halves of characters have no place in a file


def as_data(content: Content) -> str:
    """The content as JSON that no HTML parser can take for anything else, whatever the names of classes are.

    Parameters
    ----------
    content : Content
        What the page says.

    Returns
    -------
    str
    """
    text = json.dumps(content.to_dict(), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


@cache
def _templates() -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    made = Environment(
        loader=FunctionLoader(_own), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.filters["points"] = words.signed
    return made


@cache
def _own(name: str) -> str:
    text = (resources.files(__package__) / name).read_text(encoding="utf-8")
    return "\n".join(line.rstrip() for line in text.split("\n"))  # as whoever embeds the page may have it, by digest


def _digest(text: str) -> str:
    """As a Content-Security-Policy names what it allows."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
