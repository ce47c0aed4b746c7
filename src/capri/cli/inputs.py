"""From files and options to scores, labels and class names: the command line's conventions.

Archives: scores under `scores`, `logits`, `proba` (or any of these after `val_`), labels under the matching `y` or
`labels`, and, where present, `class_names` and `train_counts` or `class_counts`. Tables: score columns `score_<class>`,
or else every column but the label, which is `label` or `y`. Labels are class names, or positions 0 … K − 1. The
attributes `norm` and `noise` are taken from an archive that holds them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from capri._checks import InputError, Ints, check_counts, check_names, check_scores, check_vector, short
from capri._lazy import once
from capri.blocks.source import Source as RowBlocks
from capri.blocks.sources import ArraySource, Labelled, Relabelled, TableSource
from capri.blocks.survey import survey
from capri.classes import Classes, as_labels
from capri.cli.classes import COUNT_KEYS, NAME_KEYS, class_names, class_numbers
from capri.cli.messages import harmless
from capri.cli.tables import opened, title
from capri.tables import ONLY, SCORE_PREFIX, Archive, Table, first_of

SCORE_KEYS = tuple(prefix + key for prefix in ("", "val_") for key in ("scores", "logits", "proba", "probabilities"))
LABEL_KEYS = ("label", "y", "labels", "y_true")
ATTRIBUTE_KEYS = {"last_layer_norms": "norm", "norm": "norm", "noise": "noise"}  # as `capri train` writes them


@dataclass(frozen=True)
class Source:
    """Where to look: a file, and what the user said about it."""

    path: Path
    scores_key: str | None = None
    label_key: str | None = None
    label_file: Path | None = None
    class_names: str | None = None
    class_counts: str | None = None
    policy_classes: Classes | None = None  # stand in where the file names no classes
    with_labels: bool = True
    scores_option: str = "--scores-key"  # which gave the key of the scores

    @property
    def title(self) -> str:
        """What reports and messages call it."""
        return title(self.path)


@dataclass(frozen=True, eq=False)
class Samples:
    """Scores (n_samples, K) and what is known of them.

    labels: (n_samples,) as `classes` has them, None where there are none. named: or are the classes just numbered?
    attributes: of the classes, as far as the file holds any.
    """

    origin: str
    scores: NDArray[Any]
    labels: NDArray[Any] | None
    classes: Classes
    named: bool
    class_counts: NDArray[np.float64] | None
    attributes: Mapping[str, NDArray[np.float64]]

    @property
    def n_classes(self) -> int:
        """K."""
        return len(self.classes)

    def require_labels(self) -> NDArray[Any]:
        """The labels, or an error that says how to give them."""
        if self.labels is None:
            raise no_labels(self.origin)
        return self.labels

    @once
    def indices(self) -> Ints:
        """The labels as positions of columns."""
        return self.classes.encode(self.require_labels(), "labels")

    def ordered_as(self, classes: Classes, owner: str = "the policy") -> Samples:
        """The same samples with columns in the order of the owner's classes; by position where either has no names."""
        order = _order(self, classes, owner)
        if order is None:
            return self
        place = np.argsort(order)
        return replace(
            self,
            scores=self.scores[:, order] if self.named else self.scores,
            labels=None if self.labels is None else classes.labels[place[self.indices]],
            classes=classes,
            class_counts=None if self.class_counts is None else self.class_counts[order],
            attributes={name: column[order] for name, column in self.attributes.items()},
        )

    def describe(self) -> str:
        """One line for the top of a report."""
        return f"{harmless(self.origin)} · {len(self.scores):,} samples · {self.n_classes} classes"


@dataclass(frozen=True, eq=False)
class Stream:
    """Scores that are read in blocks, and what is known of them.

    columns: of each label, as the file has it. attributes: of the classes, as far as the file holds any.
    """

    origin: str
    blocks: RowBlocks
    columns: Mapping[Any, int]
    classes: Classes
    named: bool
    class_counts: NDArray[np.float64] | None
    attributes: Mapping[str, NDArray[np.float64]]

    @property
    def n_classes(self) -> int:
        """K."""
        return len(self.classes)

    def labelled(self) -> RowBlocks:
        """The blocks with labels as `classes` has them."""
        self.require_labels()
        return Relabelled(self.blocks, {label: self.classes.labels[k] for label, k in self.columns.items()})

    def ordered_as(self, classes: Classes, owner: str = "the policy") -> Stream:
        """As that of `Samples`."""
        order = _order(self, classes, owner)
        if order is None:
            return self
        place = np.argsort(order).tolist()
        return replace(
            self,
            blocks=self.blocks.in_order(order.tolist()) if self.named else self.blocks,
            columns={label: place[k] for label, k in self.columns.items()},
            classes=classes,
            class_counts=None if self.class_counts is None else self.class_counts[order],
            attributes={name: column[order] for name, column in self.attributes.items()},
        )

    def require_labels(self) -> None:
        """Refuse scores without labels, and say how to give them."""
        if not self.blocks.labelled:
            raise no_labels(self.origin)

    def describe(self) -> str:
        """One line for the top of a report, after a pass."""
        return f"{harmless(self.origin)} · {self.blocks.count():,} samples · {self.n_classes} classes"


def no_labels(origin: str) -> InputError:
    """The refusal of a file without labels."""
    return InputError(
        f"{origin}: no labels found; name their key or column with --label-key "
        f"({', '.join(LABEL_KEYS)} are found without), or give --labels FILE."
    )


def _order(given: Samples | Stream, classes: Classes, owner: str) -> NDArray[np.int64] | None:
    """Where each of the owner's classes stands among the columns; None where the policy knows no names, the file does.

    Columns without names are in the order of the classes already.
    """
    if given.n_classes != len(classes):
        raise InputError(
            f"{given.origin}: {given.n_classes} score columns, but {owner} has {len(classes)} classes; "
            "give scores of the same model."
        )
    if not given.named:
        return np.arange(len(classes))
    if classes.names == check_names(None, len(classes)) and not classes.named_by(given.classes.names):
        return None  # the policy knows its classes by number only, the file by name
    _all_existing(classes.names, given.classes.names, given.origin, f"a class of {owner}")
    return np.array(classes.positions(given.classes.names, given.origin), dtype=np.int64)


def further_samples(source: Source, samples: Samples | Stream) -> Samples:
    """Those of another file, with columns in the order of the samples at hand."""
    return read_samples(replace(source, policy_classes=samples.classes)).ordered_as(
        samples.classes, owner=samples.origin
    )


def further_scores(source: Source, samples: Samples | Stream) -> NDArray[Any]:
    """The same of a file whose labels do not matter."""
    return further_samples(replace(source, with_labels=False), samples).scores


class _Parts(NamedTuple):
    """What a file says, as it says it.

    scores, labels: read when asked for. blocks: the same in blocks of rows. tabular: are labels read as text?
    """

    origin: str
    scores: Callable[[], NDArray[Any]]
    labels: Callable[[], Sequence[Any]] | None
    blocks: Callable[[], RowBlocks]
    class_names: Sequence[Any] | None
    class_counts: NDArray[Any] | None
    attributes: Mapping[str, NDArray[Any]]
    tabular: bool = False

    def names(self, source: Source, n_classes: int) -> Sequence[Any] | None:
        """The labels of the columns, where they have names or a policy lends its own."""
        known, lent = self.class_names, source.policy_classes
        if known is None and lent is not None and len(lent) == n_classes:
            known = lent.labels.tolist()
        if known is not None:
            check_names(known, n_classes)
        return known

    def columns(self, source: Source, n_classes: int) -> dict[str, NDArray[np.float64]]:
        """Attributes of the classes, checked."""
        given = self.attributes.items()
        return {name: check_vector(column, f"{source.title}: {name}", n_classes) for name, column in given}

    def counts(self, source: Source, classes: Classes) -> NDArray[np.float64] | None:
        """Training samples by class, as the options say, or the file."""
        counts = self.class_counts
        if source.class_counts is not None:
            counts = class_numbers(source.class_counts, "--class-counts", classes)
        return None if counts is None else check_counts(counts, len(classes))


def read_samples(source: Source) -> Samples:
    """Everything that the file and the options say, checked."""
    parts = _parts(source)
    scores = check_scores(parts.scores(), parts.origin)
    k = scores.shape[1]
    given = None
    if source.with_labels:
        own = None if parts.labels is None else parts.labels()
        given = own if source.label_file is None else _labels_of(source.label_file, source.label_key)
    classes, labels = _labelled(given, parts.names(source, k), len(scores), k)
    return Samples(
        origin=parts.origin,
        scores=scores,
        labels=labels,
        classes=classes,
        named=parts.class_names is not None,
        class_counts=parts.counts(source, classes),
        attributes=parts.columns(source, k),
    )


def read_stream(source: Source) -> Stream:
    """The same of scores that are read in blocks, where the labels alone are passed over."""
    parts = _parts(source)
    blocks = parts.blocks()
    k = blocks.n_classes
    if source.with_labels and source.label_file is not None:
        blocks = Labelled(blocks, np.array(_labels_of(source.label_file, source.label_key)), "labels")
    found = survey(blocks) if source.with_labels and blocks.labelled else None
    distinct = [] if found is None else found.distinct.tolist()
    said = [str(label) for label in distinct] if parts.tabular else distinct
    classes, labels = _labelled(said or None, parts.names(source, k), len(said), k)
    columns = {} if labels is None else dict(zip(distinct, classes.encode(labels, "labels").tolist(), strict=True))
    return Stream(
        origin=parts.origin,
        blocks=blocks,
        columns=columns,
        classes=classes,
        named=parts.class_names is not None,
        class_counts=parts.counts(source, classes),
        attributes=parts.columns(source, k),
    )


def _parts(source: Source) -> _Parts:
    file = opened(source.path)
    return _from_table(source, file) if isinstance(file, Table) else _from_archive(source, file)


# --------------------------------------------------------------------------------------------------------------------
# Archives


def _from_archive(source: Source, archive: Archive) -> _Parts:
    key = _scores_key(archive, source)
    without = source.label_file is not None or _may_lack(source, archive.names)
    label_key = None if without else _label_key(archive, source.title, key, source.label_key)
    origin = source.title if key == ONLY else f"{source.title}: {key}"

    def labels() -> Sequence[Any]:
        return _flat(archive.get(str(label_key)), f"{source.title}: {label_key}")

    def blocks() -> RowBlocks:
        return ArraySource(archive.rows(key), None if label_key is None else labels(), origin)

    return _Parts(
        origin=origin,
        scores=lambda: archive.get(key),
        labels=None if label_key is None else labels,
        blocks=blocks,
        class_names=_names(source, first_of(archive, NAME_KEYS)),
        class_counts=first_of(archive, COUNT_KEYS),
        attributes={name: archive.get(key) for key, name in ATTRIBUTE_KEYS.items() if key in archive.names},
    )


def _names(source: Source, own: NDArray[Any] | None) -> Sequence[Any] | None:
    """The names of the columns: as given, or the file's own."""
    known = None if own is None else _flat(own, f"{source.title}: class_names", "name per class")
    if source.class_names is None:
        return known
    given = class_names(source.class_names)
    texts = [str(name) for name in known or ()]
    if given != texts and sorted(given) == sorted(texts):
        raise InputError(
            f"{source.title} names its columns {short(texts)}, and --class-names the same in another order; leave "
            "it out."
        )
    return given


def _scores_key(archive: Archive, source: Source) -> str:
    if archive.names == [ONLY]:
        return ONLY
    if source.scores_key is not None:
        return _existing(source.scores_key, archive.names, source.title, source.scores_option)
    known = [key for key in SCORE_KEYS if key in archive.names]
    if len(known) == 1:
        return known[0]
    shown = ", ".join(archive.names) or "nothing"
    problem = f"holds scores under {' and '.join(known)}" if known else f"holds no scores under {SCORE_KEYS[0]}"
    raise InputError(f"{source.title}: {problem} (it holds {shown}); choose with {source.scores_option} KEY.")


def _label_key(archive: Archive, where: str, scores_key: str, wanted: str | None) -> str | None:
    """As given, or the first that matches the scores: `val_y` beside `val_logits`, `y` beside `logits`."""
    if wanted is not None:
        return _existing(wanted, archive.names, where, "--label-key")
    prefix = scores_key.rpartition("_")[0]
    candidates = [f"{prefix}_{key}" for key in LABEL_KEYS] if prefix else []
    return next((key for key in (*candidates, *LABEL_KEYS) if key in archive.names), None)


def _may_lack(source: Source, names: Sequence[str]) -> bool:
    """Are labels neither there nor needed?"""
    return not source.with_labels and source.label_key not in names


def _all_existing(wanted: Sequence[str], names: Sequence[str], where: str, option: str) -> None:
    there = set(names)
    for name in wanted:
        if name not in there:
            _existing(name, names, where, option)


def _existing(wanted: str, names: Sequence[str], where: str, option: str) -> str:
    if wanted in names:
        return wanted
    near = get_close_matches(wanted, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {short(', '.join(names))}."
    raise InputError(f"{where}: {option} is {wanted!r}, which is not in the file; {hint}")


# --------------------------------------------------------------------------------------------------------------------
# Tables


def _from_table(source: Source, table: Table) -> _Parts:
    label = next((key for key in LABEL_KEYS if key in table.names), None)
    if source.label_key is not None and source.label_file is None and not _may_lack(source, table.names):
        label = _existing(source.label_key, table.names, source.title, "--label-key")
    listed = _list_column(source, table)
    columns = {} if listed else _score_columns(source, [name for name in table.names if name != label])
    names = class_names(source.class_names) if listed and source.class_names is not None else list(columns) or None
    wanted = [listed] if listed else list(columns.values())
    if source.label_file is not None:
        label = None
    return _Parts(
        origin=source.title,
        scores=lambda: table.numbers(wanted),
        labels=None if label is None else lambda: table.texts(label),
        blocks=lambda: TableSource(table, wanted, label if source.with_labels else None, source.title, names),
        class_names=names,
        class_counts=None,
        attributes={},
        tabular=True,
    )


def _list_column(source: Source, table: Table) -> str | None:
    """The column that holds a list of scores in each row, where one is named or called as scores are."""
    called = [source.scores_key] if source.scores_key is not None else SCORE_KEYS
    found = [name for name in table.lists if name in called]
    return found[0] if len(found) == 1 else None


def _score_columns(source: Source, columns: Sequence[str]) -> dict[str, str]:
    """Score columns by class name: those with the prefix, or all; those of --class-names, in that order, if given."""
    prefix = SCORE_PREFIX if source.scores_key is None else source.scores_key
    found = {name.removeprefix(prefix): name for name in columns if name.startswith(prefix)}
    if not found and source.scores_key is not None:
        raise InputError(
            f"{source.title}: no column begins with {prefix!r}; {source.scores_option} is the prefix of score columns."
        )
    found = found or {name: name for name in columns}
    if source.class_names is None:
        _check_scores_alone(source, found.values())
        return found
    wanted = class_names(source.class_names)
    _all_existing(wanted, list(found), source.title, "a name in --class-names")
    return {name: found[name] for name in wanted}


def _check_scores_alone(source: Source, columns: Iterable[str]) -> None:
    """Refuse the index of a pandas frame among the scores, as to_csv() and to_parquet() write it."""
    for name in columns:
        if re.fullmatch(r"|Unnamed: \d+|__index_level_\d+__", name):
            raise InputError(
                f"{source.title}: the column {name!r} is an index, not a score; write the table without it "
                "(index=False), or list the score columns with --class-names."
            )


# --------------------------------------------------------------------------------------------------------------------
# Labels


def _labels_of(path: Path, key: str | None) -> Sequence[Any]:
    """Labels from a file of their own."""
    file, where = opened(path), title(path)
    chosen = _only_labels(file.names, where, key)
    if isinstance(file, Table):
        return file.texts(chosen)
    return _flat(file.get(chosen), where if chosen == ONLY else f"{where}: {chosen}")


def _only_labels(names: Sequence[str], where: str, key: str | None) -> str:
    """The key or column that is named, or the one that is called so, or the only one there is."""
    if key is not None and names != [ONLY]:
        return _existing(key, names, where, "--label-key")
    known = [name for name in LABEL_KEYS if name in names] or names
    if len(known) != 1:
        raise InputError(f"{where}: holds {short(', '.join(known))}; say with --label-key which are the labels.")
    return known[0]


def _flat(labels: NDArray[Any], name: str, one: str = "label per sample") -> list[Any]:
    if labels.ndim != 1:
        raise InputError(f"{name} must hold one {one}; got shape {labels.shape}.")
    return labels.tolist()


def _labelled(
    labels: Sequence[Any] | None, names: Sequence[Any] | None, n_samples: int, n_classes: int
) -> tuple[Classes, NDArray[Any] | None]:
    """The classes of the columns, and the labels in their terms: by name, or by position where they are no names."""
    if labels is None:
        return Classes.of(names or range(n_classes)), None
    if len(labels) != n_samples:
        raise InputError(f"there are {len(labels)} labels for {n_samples} samples; give one label per sample.")
    if names is not None and Classes.of(names).named_by(labels):
        return Classes.found(labels, n_classes, columns=names, name="labels"), as_labels(labels, "labels")
    numbers = _numbers(labels)
    if numbers is None or (names is not None and not all(isinstance(name, str) for name in names)):
        known = short(list(names)) if names else f"0 … {n_classes - 1}; name the columns with --class-names"
        raise InputError(f"label {labels[0]!r} is not in the class list: {known}.")
    found = Classes.found(numbers, n_classes, name="labels")
    classes = found if names is None else Classes.of(names)
    return classes, classes.labels[found.encode(numbers, "labels")]


def _numbers(labels: Sequence[Any]) -> NDArray[Any] | None:
    """Labels as numbers, where they are or say numbers."""
    if not any(isinstance(label, str) for label in labels):
        return as_labels(labels, "labels")
    with suppress(TypeError, ValueError):
        return as_labels([int(label) for label in labels], "labels")  # of any length
    try:
        numbers = np.array([float(label) for label in labels])
    except (TypeError, ValueError):
        return None
    whole = (np.abs(numbers) < 2**53).all() and (numbers == np.floor(numbers)).all()
    return numbers.astype(np.int64) if whole else numbers
