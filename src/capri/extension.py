"""What a package that extends capri shares with it: checks in its words, atomic writes, and where a figure comes from.

The commands of an extension are entry points of the group `capri.commands`; `capri.cli.commands` holds all of them.
"""

from capri._checks import Floats, check_scores, check_vector
from capri._files import write_atomically
from capri._provenance import commit, data_digest, versions

__all__ = [
    "Floats",
    "check_scores",
    "check_vector",
    "commit",
    "data_digest",
    "versions",
    "write_atomically",
]
