"""Contents of pages, made up in no time for any number of classes."""

from dataclasses import replace

import numpy as np
import pytest

from capri.page import Content, View
from capri.page.content import ClassTable, Confusions, Errors, Limit, Pair, Rung
from capri.posthoc.views import clear, wilson
from capri.sentences import headline

HOSTILE = (
    "<script>document.title = 'owned'</script>",
    "</script><img src=x onerror=alert(1)>",
    "<!--",
    "]]>",
    "\"double\" and 'single' `quotes` {{ 7 * 7 }} ${7 * 7}",
    "قطة سوداء",
    "\u202egnirts desrever\u202c",
    "🐈‍⬛ black cat 🏳️‍🌈",
    "a" * 200,
    "line\nbreak\tand tab",
    "&lt;b&gt; &amp; \u2028 \u2029",
    "javascript:alert(1)",
)


def made(k, names=None, *, kinds=("test", "in sample"), absent=(), counts=True, seed=0) -> Content:
    """The content of a page about k classes."""
    rng = np.random.default_rng(seed)
    given = [] if names is None else list(names)[:k]
    named = given + [f"class {i}" for i in range(k - len(given))]
    training = np.floor(5000 * 200.0 ** (-np.arange(k) / max(k - 1, 1)))
    views = [made_view(kind, k, rng, absent) for kind in kinds]
    group = (np.arange(k) * 3 // k).tolist()
    return Content(
        objective="cvar:0.2",
        headline=headline("cvar:0.2", views[0].before, views[0].after, test=views[0].n_samples, interval=(0.1, 0.2)),
        views=views,
        classes=ClassTable(
            names=named,
            training=training.tolist() if counts else None,
            frequency=(training / training.sum()).tolist() if counts else None,
            groups=["common third", "middle third", "rare third"] if counts and k > 2 else [],
            group=group if counts and k > 2 else [],
            offsets=(np.log(training) - np.log(training).mean()).tolist(),
            multipliers=[1.0] * k,
            residual=rng.normal(size=k).tolist(),
        ),
        method="cap",
        reason="for a test",
        ladder=[Rung("τ = 1", 0.1, (0.05, 0.15)), Rung("tuned", 0.2, (0.1, 0.3))],
        line={
            "objective": "cvar:0.2",
            "tau": [0.5, 1.5],
            "low": [0.9, 0.6, 0.7],
            "high": [0.9, 0.65, 0.7],
            "n_plateaus": 12,
            "marks": {"unadjusted": {"tau": 0.0, "value": 0.9}, "LA, tuned": {"tau": 1.2, "value": 0.6}},
        },
        facts={"objective": "cvar:0.2", "samples": named[0], "scores": "logits"},
        notes=[f"A note of {named[0]}."],
    )


def made_view(kind, k, rng, absent) -> View:
    samples = np.full(k, 50.0)
    samples[list(absent)] = 0
    here = samples > 0
    wrong = rng.binomial(50, rng.uniform(0.05, 0.95, k))
    broken = rng.binomial(wrong * 0 + 50 - wrong, 0.1)
    fixed = rng.binomial(wrong, 0.3)
    first, second = (np.where(here, w / 50, np.nan) for w in (wrong, wrong - fixed + broken))
    pairs = [Pair(i, (i + 1) % k, 30 - i, 10 + i) for i in range(min(k, 20))]
    shown = list(range(min(k, 20 if k > 30 else 30)))
    size = len(shown) + (k > 30)
    tables = [(rng.integers(0, 5, (size, size)) + 40 * np.eye(size)).tolist() for _ in range(2)]
    return View(
        kind=kind,
        n_samples=int(samples.sum()),
        before={"cvar:0.2": 0.9, "plain": 0.3, "balanced": 0.4},
        after={"cvar:0.2": 0.7, "plain": 0.32, "balanced": 0.35},
        samples=samples.tolist(),
        first=errors(first, samples),
        second=errors(second, samples),
        fixed=fixed.tolist(),
        broken=broken.tolist(),
        clear=clear(fixed, broken).tolist(),
        confusions=Confusions(pairs, shown, *tables, complete=k <= 30),
        limits=[Limit("plain <= baseline + 0.05", 0.32, 0.35, True)],
    )


def errors(values, samples) -> Errors:
    def listed(column):
        return [None if np.isnan(v) else float(v) for v in column]

    return Errors(*map(listed, (values, *wilson(values, samples))))


def made_frontier(content: Content, points=5) -> dict:
    """A curve that trades the mean error for CVaR; the class errors of point i are all i tenths."""
    curve = [{"value": 0.9 - 0.1 * i, "price": 0.3 + 0.01 * i**2} for i in range(points)]
    errors = [[i / 10] * content.n_classes for i in range(points)]
    return {
        "of": "cvar:0.2",
        "against": "plain",
        "kind": "test",
        "points": [{**point, "errors": e} for point, e in zip(curve, errors, strict=True)],
        "unadjusted": {"value": 0.95, "price": 0.3},
        "policy": {"value": 0.7, "price": 0.33},
        "tuned": curve,
        "held": curve,
        "held_out": "out of fold",
    }


def made_abstaining(content: Content) -> Content:
    """The same of a policy that decides half of the first class of the test samples, and all others."""
    k, (test, *others) = content.n_classes, content.views
    return replace(content, abstains=True, views=[replace(test, decided=[0.5] + [1.0] * (k - 1), clear=[]), *others])


@pytest.fixture(scope="session")
def abstaining_of():
    return made_abstaining


@pytest.fixture(scope="session")
def frontier_of():
    return made_frontier


@pytest.fixture(scope="session")
def content_of():
    return made


@pytest.fixture(scope="session")
def hostile() -> tuple[str, ...]:
    """Class names that would do harm, or look odd, if a page let them."""
    return HOSTILE
