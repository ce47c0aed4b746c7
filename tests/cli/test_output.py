"""Nothing is damaged on the way out: inputs stay, permissions stay, terminals are not told what to do."""

import errno
import io
import json
import os
import stat
import subprocess
import sys

import numpy as np
import pytest

from capri import Policy, Strategy, fold

ESCAPE = "\x1b[2J\x9b31m\u202e"  # clears a screen, reddens it, turns the direction of text


def refused(done, message):
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1), done
    assert message in done.err
    return True


@pytest.fixture
def here(files, policy, tmp_path):
    """Copies of the good files, in the folder where commands run."""
    for path in files.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


class TestPlaces:
    @pytest.mark.parametrize(
        "arguments",
        [
            ["apply", "val.npz", "policy.json", "-o", "x.npz", "--adjusted", "x.npz"],
            ["apply", "val.npz", "policy.json", "-o", "x.npz", "--adjusted", "./here/../x.npz"],
            ["apply", "val.npz", "policy.json", "-o", "val.npz"],
            ["apply", "val.npz", "policy.json", "--adjusted", "val.npz"],
            ["apply", "val.npz", "policy.json", "--adjusted", "link.npz"],
            ["apply", "val.csv", "policy.json", "-o", "hard.csv"],
            ["fold", "layer.npz", "policy.json", "-o", "layer.npz"],
            ["tune", "val.npz", "--class-counts", "counts.json", "-o", "counts.json"],
            ["tune", "val.npz", "--weights", "counts.json", "-o", "counts.json"],
        ],
        ids=" ".join,
    )
    def test_no_file_is_written_over_what_is_read_or_written(self, capri, here, arguments):
        (here / "here").mkdir()
        (here / "link.npz").symlink_to("val.npz")
        (here / "hard.csv").hardlink_to(here / "val.csv")
        (here / "counts.json").write_text("[900, 90, 10]")
        np.savez(here / "layer.npz", weight=np.ones((3, 4)), bias=np.ones(3))
        before = {path.name: path.read_bytes() for path in here.iterdir() if path.is_file()}
        assert refused(capri(*arguments), "choose another")
        assert {path.name: path.read_bytes() for path in here.iterdir() if path.is_file()} == before

    def test_a_policy_may_be_written_anew(self, capri, here):
        assert capri("tune", "val.npz", "--method", "la", "-o", "policy.json").code == 0

    @pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/null")])
    def test_pipes_and_devices_are_not_replaced_by_files(self, capri, here, make):
        make(here / "p.csv")
        assert refused(capri("apply", "val.npz", "policy.json", "-o", "p.csv"), "p.csv: is not a regular file")
        assert not stat.S_ISREG((here / "p.csv").stat().st_mode)


class TestPermissions:
    def test_of_new_files_are_those_of_the_user(self, capri, here):
        before = os.umask(0o077)
        try:
            assert capri("apply", "val.npz", "policy.json", "-o", "private.csv").code == 0
        finally:
            os.umask(before)
        assert stat.S_IMODE((here / "private.csv").stat().st_mode) == 0o600

    def test_of_old_files_stay(self, capri, here):
        for mode in (0o600, 0o640):
            (here / "p.csv").write_text("")
            (here / "p.csv").chmod(mode)
            assert capri("apply", "val.npz", "policy.json", "-o", "p.csv").code == 0
            assert stat.S_IMODE((here / "p.csv").stat().st_mode) == mode


class TestFold:
    @pytest.fixture
    def rule(self, tmp_path):
        policy = Policy(Strategy.of(3, l=[0.0, 1e6, -0.3], delta=[1, 2, 1]), "balanced", ("a", "b", "c"))
        policy.save(tmp_path / "p.json")
        return policy

    @pytest.mark.parametrize(
        ("dtype", "says"), [(np.float16, "does not fit into float16"), (np.int8, "int8 holds no fractions")]
    )
    def test_numbers_that_do_not_fit_are_refused(self, capri, rule, tmp_path, dtype, says):
        np.savez(tmp_path / "x.npz", weight=np.ones((3, 4), dtype), bias=np.ones(3, dtype))
        assert refused(capri("fold", "x.npz", "p.json", "-o", "y.npz"), says)
        assert not (tmp_path / "y.npz").exists()

    def test_of_models_too(self, rule):
        torch = pytest.importorskip("torch")
        with pytest.raises(ValueError, match=r"does not fit into torch\.float16"):
            fold(torch.nn.Linear(4, 3).half(), rule)


class TestTerminals:
    """Names come from files; what a terminal obeys is shown as its code."""

    def test_names_in_tables_messages_and_json(self, capri, data, tmp_path):
        scores, y = data
        names = np.array([f"cat{ESCAPE}", "dog", "lynx"])
        np.savez(tmp_path / "x.npz", logits=scores, y=y, class_names=names)
        for done in (
            capri("evaluate", "x.npz"),
            capri("evaluate", "x.npz", "--json"),
            capri("compare", "x.npz", "--methods", "unadjusted"),
            capri("evaluate", "x.npz", "--labels", f"{ESCAPE}.csv"),
            capri("evaluate", "x.npz", "--objective", f"err[{ESCAPE}]"),
        ):
            assert not set("\x1b\x9b\u202e") & set(done.out + done.err), done
        assert json.loads(capri("evaluate", "x.npz", "--json").out)["classes"][0]["name"] == names[0]

    def test_a_policy_for_such_names_is_refused(self, capri, data, tmp_path):
        np.savez(tmp_path / "x.npz", logits=data[0], y=data[1], class_names=[f"cat{ESCAPE}", "dog", "lynx"])
        assert refused(capri("tune", "x.npz", "--method", "la", "--class-counts", "3,2,1", "-o", "p.json"), "control")

    def test_names_that_are_not_utf8(self, capri, here):
        name = os.fsdecode(b"\xff.npz")
        (here / name).write_bytes((here / "val.npz").read_bytes())
        for arguments in (["evaluate", name], ["evaluate", name, "--json"]):
            assert capri(*arguments).code == 0
        done = capri("apply", "val.npz", "policy.json", "-o", os.fsdecode(b"\xff.csv"))
        assert done.code == 0, done

    def test_a_terminal_of_few_letters(self, capri, here, monkeypatch):
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
        assert capri("evaluate", "val.npz").code == 0


class TestStandardOutput:
    @pytest.fixture(params=["buffered", "unbuffered"])
    def buffered(self, request, monkeypatch):
        """What cannot be written is noticed at the end, or at once."""
        monkeypatch.setenv("PYTHONUNBUFFERED", "" if request.param == "buffered" else "1")

    @pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")  # noqa: PTH110
    @pytest.mark.parametrize("arguments", [["evaluate", "val.npz"], ["evaluate", "val.npz", "--json"],
                                           ["apply", "val.npz", "policy.json"], ["--help"]], ids=" ".join)  # fmt: skip
    def test_that_is_full_is_no_success(self, here, buffered, arguments):
        with open("/dev/full", "w") as full:  # noqa: PTH123
            done = subprocess.run([sys.executable, "-m", "capri", *arguments], cwd=here, stdout=full,
                                  stderr=subprocess.PIPE, text=True)  # fmt: skip
        assert done.returncode == 2
        assert done.stderr == "capri: [Errno 28] No space left on device\n"

    @pytest.mark.parametrize("arguments", [["apply", "val.npz", "policy.json"], ["evaluate", "val.npz"], ["--help"]],
                             ids=" ".join)  # fmt: skip
    def test_that_nobody_reads(self, here, buffered, arguments):
        read, write = os.pipe()
        os.close(read)
        done = subprocess.run([sys.executable, "-m", "capri", *arguments], cwd=here,
                              stdout=write, stderr=subprocess.PIPE, text=True)  # fmt: skip
        os.close(write)
        assert done.returncode == 2
        assert done.stderr == "capri: [Errno 32] Broken pipe\n"

    @pytest.mark.parametrize("arguments", [["apply", "val.npz", "policy.json"], ["evaluate", "val.npz"], ["--version"]])
    def test_that_is_closed_is_no_success(self, capri, here, monkeypatch, arguments):
        monkeypatch.setattr(sys, "stdout", None)
        assert refused(capri(*arguments), "standard output is closed")

    def test_warnings_are_not_among_results_where_stderr_is_closed(self, capri, here, monkeypatch):
        assert "sum to 1, as probabilities do" in capri("apply", "proba.npz", "policy.json").err
        monkeypatch.setattr(sys, "stderr", None)
        assert set(capri("apply", "proba.npz", "policy.json").out.split()) <= {"prediction", "cat", "dog", "lynx"}

    def test_an_error_that_cannot_be_said_ends_as_one(self, capri, monkeypatch):
        class Full(io.StringIO):
            def write(self, text):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(sys, "stderr", Full())
        assert capri("evaluate", "absent.npz").code == 2

    def test_predictions_are_utf8_whatever_the_terminal_is(self, here):
        Policy(Strategy.of(3), "balanced", ("ä", "b", "c")).save(here / "p.json")
        done = subprocess.run([sys.executable, "-m", "capri", "apply", "scores.npy", "p.json"], cwd=here,
                              capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"})  # fmt: skip
        assert done.returncode == 0
        assert set(done.stdout.decode().split()) <= {"prediction", "ä", "b", "c"}
