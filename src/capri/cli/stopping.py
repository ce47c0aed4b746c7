"""Signals that ask a command to end, as exceptions that reach its end."""

from __future__ import annotations

import os
import signal
import sys
from _thread import start_new_thread
from collections.abc import Iterator
from contextlib import contextmanager
from time import sleep
from typing import Any
from weakref import ref

from capri._stopping import Stopped

AGAIN = 0.05  # seconds, by which callbacks and destructors have come to their end


@contextmanager
def stoppable() -> Iterator[None]:
    """Signals that ask the process to end raise `Stopped` inside, unless whoever started it has them ignored."""
    with _Kept() as keep:

        def stop(number: int, frame: object) -> None:
            raise keep(Stopped(number))

        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        heard = [number for number, handler in before.items() if handler is not signal.SIG_IGN]
        for number in heard:
            signal.signal(number, stop)
        try:
            yield
        finally:
            for number in heard:
                signal.signal(number, before[number])


class _Kept:
    """What a handler raises may be lost: in callbacks of compilers and destructors, which no exception can leave, where
    others catch all, and while Python words an error of its own. Then the signal comes again."""

    def __enter__(self) -> _Kept:
        self._raised = list[ref[Stopped]]()
        self._hook, sys.unraisablehook = sys.unraisablehook, self._show
        return self

    def __call__(self, stopped: Stopped) -> Stopped:
        number = stopped.args[0]
        self._raised.append(ref(stopped, lambda _: start_new_thread(self._again, (number,))))
        return stopped  # which no name holds: it goes as soon as it is lost

    def _again(self, number: int) -> None:
        sleep(AGAIN)
        if self._raised:  # the command is not over
            os.kill(os.getpid(), number)

    def _show(self, unraisable: Any) -> None:
        if not isinstance(unraisable.exc_value, Stopped):
            self._hook(unraisable)

    def __exit__(self, *_: object) -> None:
        self._raised.clear()
        sys.unraisablehook = self._hook
