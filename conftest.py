"""What the tests share: settings of hypothesis, a long tail, and the real data where it is present."""

import os
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

settings.register_profile("capri", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("capri")


def pytest_make_parametrize_id(val: object) -> str | None:
    """Functions, alone or in lists, by name: ids must be the same in every process of `pytest -n`."""
    return re.sub(r"<function (\S+) at 0x\w+>", r"\1", repr(val)) if "<function" in repr(val) else None


@pytest.fixture(autouse=True)
def _pages_write_elsewhere(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Doctests run in a folder of their own: what a page saves does not stay in the repository."""
    if isinstance(request.node, pytest.DoctestItem):
        monkeypatch.chdir(request.getfixturevalue("tmp_path"))


@pytest.fixture
def rng() -> np.random.Generator:
    """Seeded."""
    return np.random.default_rng(20240)


@pytest.fixture
def counts() -> np.ndarray:
    """A long tail over ten classes, 500 samples down to 5."""
    return np.floor(500 * 100.0 ** (-np.arange(10) / 9))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of shared data, from CAPRI_SHARED or beside the repository."""
    folder = Path(os.environ.get("CAPRI_SHARED", Path(__file__).parent.parent / "shared"))
    if not (folder / "data").is_dir():
        pytest.skip(f"no shared data in {folder}; set CAPRI_SHARED to its folder")
    return folder


@pytest.fixture
def imagenet_tree(tmp_path: Path) -> Path:
    """Three classes in the published layout of ImageNet-LT."""
    from PIL import Image

    root, rng = tmp_path / "imagenet", np.random.default_rng(0)
    for split, counts in {"train": (6, 3, 2), "val": (2, 2, 2), "test": (2, 2, 2)}.items():
        lines = []
        for k, n in enumerate(counts):
            for i in range(n):
                name = f"train/n0{k}/n0{k}_{i}.JPEG" if split == "train" else f"val/{split}_{k}_{i}.JPEG"
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                pixels = rng.integers(0, 100, (40, 50 + k, 3)) + 60 * k
                Image.fromarray(pixels.astype(np.uint8)).save(path, format="JPEG")
                lines.append(f"{name} {k}\n")
        (root / f"ImageNet_LT_{split}.txt").write_text("".join(lines))
    return root
