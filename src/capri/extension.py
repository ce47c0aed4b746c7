"""What a package that extends capri shares with it: checks, atomic writes, locks, stops, and where a figure comes from.

The commands of an extension are entry points of the group `capri.commands`; `capri.cli.commands` holds all of them.
"""

from capri._checks import Floats, check_scores, check_vector
from capri._files import locked, remove_partial, write_atomically
from capri._provenance import commit, data_digest, versions
from capri._stopping import Stopped

__all__ = [
    "Floats",
    "Stopped",
    "check_scores",
    "check_vector",
    "commit",
    "data_digest",
    "locked",
    "remove_partial",
    "versions",
    "write_atomically",
]
