"""How large a report is, how long it takes to make beside the fit, and how soon it is there in a browser.

    python reproduction/benchmarks/report.py                    # 10, 100 and 1,000 classes, ten validation samples each
    python reproduction/benchmarks/report.py --classes 8142 --per-class 2 --no-fit

Scores are made up: a model with a bias towards common classes. Each page is opened five times in Chromium, where
Playwright and a browser are installed (`make browser-tests`), and the fastest counts: another process may be at work.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

from capri import LogitAdjuster, Policy, Strategy
from capri.page import Report
from capri.posthoc.account import account, pose
from capri.posthoc.views import by_policy

OPENED = 5
READY = "document.documentElement.dataset.ready === 'true'"
UNTIL_READY = "performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"


def samples(k: int, per_class: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logits, labels, and training counts."""
    rng = np.random.default_rng(seed)
    counts = np.floor(1000 * 200.0 ** (-np.arange(k) / (k - 1)))
    y = np.repeat(np.arange(k), per_class)
    scores = rng.normal(size=(len(y), k)).astype(np.float32)
    scores += np.log(counts / counts.sum()).astype(np.float32)
    scores[np.arange(len(y)), y] += 4
    return scores, y, counts


def made(k: int, per_class: int, fit: bool) -> tuple[Report, float, float]:
    """A report with test samples, the seconds of the fit, and those of the report."""
    scores, y, counts = samples(k, per_class)
    test, y_test, _ = samples(k, per_class, seed=1)
    begun = time.perf_counter()
    if fit:
        adjuster = LogitAdjuster("cvar:0.2", method="la").fit(scores, y, class_counts=counts)
        fitted = time.perf_counter()
        report = adjuster.report(test, y_test)
    else:
        policy = Policy(Strategy.logit_adjustment(counts), "cvar:0.2", tuple(range(k)))
        fitted = time.perf_counter()
        pairs = ("in sample", scores, y), ("test", test, y_test)
        decided = [by_policy(kind, policy, pose(policy, x, labels, class_counts=counts)) for kind, x, labels in pairs]
        report = Report(account(policy, decided, class_counts=counts))
    report.to_html()
    return report, fitted - begun, time.perf_counter() - fitted


def opened(path: Path) -> float | None:
    """Seconds from opening the page until its script is done; None without a browser."""
    browser = shutil.which(os.environ.get("CHROMIUM", "chromium"))
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    if browser is None:
        return None
    seconds = []
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"])
        for _ in range(OPENED):
            page = chromium.new_page()
            page.goto(path.as_uri())
            page.wait_for_function(READY)
            seconds.append(page.evaluate(UNTIL_READY) / 1000)
            page.close()
        chromium.close()
    return min(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--classes", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--per-class", type=int, default=10, help="validation samples of each class, and test samples")
    parser.add_argument("--no-fit", action="store_true", help="report a policy that was not tuned")
    options = parser.parse_args()
    print("| classes | page, kB | fit, s | report, s | opens, s |\n| ---: | ---: | ---: | ---: | ---: |")
    warnings.simplefilter("ignore")
    made(5, 10, fit=not options.no_fit)  # compiles
    for k in options.classes:
        report, fit, seconds = made(k, options.per_class, fit=not options.no_fit)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "report.html"
            report.save(path)
            there = opened(path)
            size = path.stat().st_size / 1000
        shown = "–" if options.no_fit else f"{fit:.1f}"
        print(
            f"| {k:,} | {size:,.0f} | {shown} | {seconds:.2f} | {'–' if there is None else f'{there:.2f}'} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
