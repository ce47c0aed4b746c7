"""The campaign: what is missing, in order; it stops by the clock and goes on."""

import time

import pytest

from capri.extension import Stopped
from capri_paper import campaign
from capri_paper.cli import app, exhibits
from capri_paper.store import Store, Unit


def test_every_unit_is_planned_once_and_the_cheapest_come_first():
    planned = campaign.planned(exhibits())
    tables = [stage.table for stage in planned.values()]
    assert len(planned) == len({unit.digest for unit in planned})
    assert tables[0] == "searches"
    assert {"searches", "balanced", "attributes", "transfer", "warmup", "search-objectives", "losses"} == set(tables)


def test_what_is_stored_is_not_missing(tmp_path):
    works = {"train": lambda unit, store: {"test": {"balanced": 0.5}}}
    store = Store(tmp_path, tmp_path, works)
    first = next(unit for unit in campaign.missing(store, exhibits()) if unit.kind == "train")
    store.need(first)
    left = campaign.missing(store, exhibits())
    assert first not in left
    assert len(left) == len(campaign.planned(exhibits())) - 1


def test_the_clock_stops_a_unit_and_the_command_ends_well(tmp_path, monkeypatch, capsys):
    from capri import cli
    from capri_paper import runner

    def slow(unit, store):
        time.sleep(30)
        return {}

    monkeypatch.setattr(runner, "WORKS", dict.fromkeys(runner.WORKS, slow))
    monkeypatch.setattr(campaign, "step_back", lambda: None)
    start = time.monotonic()
    with pytest.raises(SystemExit) as end:
        cli.app(["paper", "campaign", "--hours", "0.0002", "--results", str(tmp_path)])
    assert end.value.code in (0, None)
    assert time.monotonic() - start < 20
    assert "time is up" in capsys.readouterr().out


def test_a_signal_from_outside_is_no_success():
    with campaign.alarm(None) as rung, pytest.raises(Stopped):
        raise Stopped(15)
    assert not rung.is_set()


def test_the_list_says_what_is_there(tmp_path):
    from typer.testing import CliRunner

    said = CliRunner().invoke(app, ["campaign", "--list", "--results", str(tmp_path)])
    assert said.exit_code == 0
    assert said.output.count("missing") >= 60
    assert isinstance(next(iter(campaign.planned(exhibits()))), Unit)
