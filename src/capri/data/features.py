"""Features computed beforehand, as .npz: x_train, y_train, x_test, y_test; x_val, y_val and class_names if any."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from capri._arrays import Npz
from capri._checks import InputError, check_scores
from capri._files import open_regular
from capri.data.splits import Part

CLINC150 = "clinc150_minilm.npz"


def load_features(path: str | Path) -> tuple[Part, Part, Part | None, tuple[str, ...]]:
    """(train, test, validation or None, class names); features are (n, n_features), pickles are refused."""
    arrays = _read(Path(path))
    for name in ("x_train", "y_train", "x_test", "y_test"):
        if name not in arrays:
            raise InputError(
                f"{path} has no array {name!r}; it holds {', '.join(arrays)}. "
                "Save it with np.savez(path, x_train=…, y_train=…, x_test=…, y_test=…)."
            )
    if "class_names" in arrays:
        names = tuple(map(str, arrays["class_names"]))
    else:
        names = tuple(map(str, range(int(arrays["y_train"].max()) + 1)))
    parts = {
        split: Part.of(
            check_scores(arrays[f"x_{split}"], f"x_{split}"), arrays[f"y_{split}"], len(names), f"{path} {split}"
        )
        for split in ("train", "val", "test")
        if f"x_{split}" in arrays
    }
    return parts["train"], parts["test"], parts.get("val"), names


def _read(path: Path) -> dict[str, NDArray[np.generic]]:
    if not path.is_file():
        raise InputError(
            f"{path} is not there. Feature files are .npz with x_train, y_train, x_test, y_test "
            "(and optionally x_val, y_val, class_names); data.root and data.file say where."
        )
    try:
        with open_regular(path) as stream:
            file = Npz(stream)
            return {name: file.get(name) for name in file.names}
    except Exception as error:  # a reader may raise anything when a file is damaged
        raise InputError(f"{path} cannot be read as .npz without pickles ({error}); save it again.") from None
