"""Sources of row blocks: scores that need not fit into memory, passed over as often as is needed.

A `Source` yields blocks (scores, labels) of bounded size, one pass after the other, and every pass must see the same:
what is found in one pass is used in the next, so a source that changes in between stops with one error. `as_source`
makes one of arrays and memory maps, of files (.npy, .csv, .parquet, folders of .parquet), of iterables and functions,
and of Dask arrays. `Policy.predict`, `capri.evaluate_blocks` and `LogitAdjuster.fit` take them in place of arrays.
"""

from capri.blocks.opening import as_source
from capri.blocks.source import Block, Source
from capri.blocks.survey import Survey, survey

__all__ = ["Block", "Source", "Survey", "as_source", "survey"]
