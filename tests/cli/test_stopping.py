"""A signal that asks a command to end does so wherever it comes, also where what it raises is lost."""

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
import weakref

import pytest


def come(number):
    os.kill(os.getpid(), number)
    time.sleep(0.01)  # the handler is called, and raises


def in_a_callback(number):
    """As of compilers: what is raised there is shown and forgotten."""
    ctypes.CFUNCTYPE(None)(lambda: come(number))()


def while_something_is_deleted(number):
    class Thing:
        def __del__(self):
            come(number)

    Thing()


def while_a_reference_is_dropped(number):
    class Thing:
        pass

    thing = Thing()
    watched = weakref.ref(thing, lambda _: come(number))
    del thing
    assert watched() is None


def where_others_catch_all(number):
    with contextlib.suppress(BaseException):
        come(number)


@pytest.fixture
def hearing():
    """Shells start what runs in the background with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("hearing")
@pytest.mark.parametrize(
    "where", [in_a_callback, while_something_is_deleted, while_a_reference_is_dropped, where_others_catch_all]
)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_is_not_lost(capri, files, monkeypatch, where, number, code):
    handlers, hook = [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)], sys.unraisablehook

    def work(source):
        where(number)
        end = time.monotonic() + 10
        while time.monotonic() < end:
            time.sleep(0.01)
        raise AssertionError("it went on")

    monkeypatch.setattr("capri.cli.options.read_stream", work)
    done = capri("evaluate", files / "val.npz")
    assert (done.code, done.out, done.err) == (code, "", f"capri: stopped by {number.name}.\n")
    assert [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)] == handlers
    assert sys.unraisablehook is hook


def test_other_things_that_cannot_be_raised_are_shown(capri, files, monkeypatch):
    shown = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: shown.append(str(unraisable.exc_value)))

    def work(source):
        ctypes.CFUNCTYPE(None)(lambda: 1 / 0)()
        raise MemoryError

    monkeypatch.setattr("capri.cli.options.read_stream", work)
    assert capri("evaluate", files / "val.npz").code == 2
    assert shown == ["division by zero"]


def test_is_heard_while_python_words_an_error(capri, files, monkeypatch):
    """Where the repr of a value is part of the message, Python 3.11 raises the error in the place of the signal."""

    def work(source):
        end = time.monotonic() + 20
        sender = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM))
        sender.start()
        while time.monotonic() < end:
            for _ in range(1000):
                with contextlib.suppress(ValueError):
                    int("x" * 100)
        raise AssertionError("it went on")

    monkeypatch.setattr("capri.cli.options.read_stream", work)
    for _ in range(5):
        assert capri("evaluate", files / "val.npz").code == 143
