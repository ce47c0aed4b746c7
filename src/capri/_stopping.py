"""A process that is told to stop ends as stopped, not as if it had done its work."""

from __future__ import annotations

import signal


class Stopped(SystemExit):
    """A signal has ended the work; where nobody catches it, the exit code says so: 143 for SIGTERM, 130 for SIGINT.

    Parameters
    ----------
    number : int
        The signal.
    """

    #: How to go on; the command line says it.
    remedy = ""

    def __init__(self, number: int):
        super().__init__(number)
        self.code = 128 + number

    def __str__(self) -> str:
        return f"stopped by {signal.Signals(self.args[0]).name}. {self.remedy}".rstrip()
