from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from capri._checks import InputError
from capri.data.cifar import RELEASES, load_cifar, read_binary, safe_unpickle
from capri.data.features import load_features
from capri.data.imagenet_lt import load_imagenet_lt, read_list
from capri.data.profiles import exponential_counts, long_tail

SHARED = Path(os.environ.get("CAPRI_SHARED", Path(__file__).resolve().parents[2].parent / "shared"))
RNG = np.random.default_rng(0)


def write_release(root: Path, name: str, form: str) -> tuple[np.ndarray, np.ndarray]:
    """A small release in either format, from the same seed; returns training images (n, 32, 32, 3) and labels."""
    release, rng = RELEASES[name], np.random.default_rng(5)
    folder = root / release.folders[form]
    folder.mkdir(parents=True)
    images, labels = [], []
    for b, t in zip(
        (*release.train["binary"], *release.test["binary"]),
        (*release.train["python"], *release.test["python"]),
        strict=True,
    ):
        x, y = rng.integers(0, 256, (12, 3072), dtype=np.uint8), rng.integers(0, release.n_classes, 12)
        coarse = [(y // 5)[:, None]] if release.label_bytes == 2 else []
        if form == "binary":
            np.concatenate([*coarse, y[:, None], x], axis=1).astype(np.uint8).tofile(folder / b)
        else:
            content = {b"data": x, release.label_key: y.tolist(), b"batch_label": b"testing"}
            (folder / t).write_bytes(pickle.dumps(content, protocol=2))
        if not b.startswith("test"):
            images.append(x.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
            labels.append(y)
    return np.concatenate(images), np.concatenate(labels)


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
@pytest.mark.parametrize("form", ["binary", "python"])
def test_both_formats_give_the_images(tmp_path, name, form):
    x, y = write_release(tmp_path, name, form)
    train, test, names = load_cifar(name, tmp_path)
    np.testing.assert_array_equal(train.x, x)
    np.testing.assert_array_equal(train.y, y)
    assert len(test) == 12
    assert len(names) == RELEASES[name].n_classes
    with pytest.raises(InputError, match="the published one is"):
        load_cifar(name, tmp_path, verify=True)


def test_class_names_come_from_the_release(tmp_path):
    write_release(tmp_path, "cifar10", "python")
    names = [b"airplane", *(f"c{k}".encode() for k in range(1, 10))]
    path = tmp_path / "cifar-10-batches-py/batches.meta"
    path.write_bytes(pickle.dumps({b"label_names": names}, protocol=2))
    assert load_cifar("cifar10", tmp_path)[2][0] == "airplane"
    path.write_bytes(pickle.dumps({b"label_names": names[:3]}, protocol=2))
    with pytest.raises(InputError, match="names 3 classes"):
        load_cifar("cifar10", tmp_path)


def test_missing_files_are_listed_with_their_source_and_layout(tmp_path):
    with pytest.raises(
        InputError, match=r"missing cifar-100-binary/train\.bin.*Download.*cs\.toronto\.edu.*data\.root"
    ):
        load_cifar("cifar100", tmp_path)
    with pytest.raises(InputError, match="name is 'cifar11'"):
        load_cifar("cifar11", tmp_path)


def test_a_truncated_binary_file(tmp_path):
    write_release(tmp_path, "cifar10", "binary")
    path = tmp_path / "cifar-10-batches-bin/data_batch_3.bin"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match=r"data_batch_3\.bin has 36776 bytes, not a multiple of 3073"):
        load_cifar("cifar10", tmp_path)


def test_a_label_out_of_range(tmp_path):
    path = tmp_path / "data.bin"
    path.write_bytes(bytes([77]) + bytes(3072))
    with pytest.raises(InputError, match="holds label 77, outside 0 … 9"):
        read_binary(path, RELEASES["cifar10"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({b"labels": [0, 1]}, "has 2 labels for 12 images"),
        ({b"labels": "abc"}, "must be a list of integers"),
        ({b"labels": [99] * 12}, "holds label 99"),
        ({b"data": np.zeros((12, 5), np.uint8)}, "must be a uint8 array of 3072 columns"),
    ],
)
def test_wrong_content_of_a_pickle(tmp_path, change, message):
    write_release(tmp_path, "cifar10", "python")
    path = tmp_path / "cifar-10-batches-py/data_batch_2"
    path.write_bytes(pickle.dumps(safe_unpickle(path) | change, protocol=2))
    with pytest.raises(InputError, match=message):
        load_cifar("cifar10", tmp_path)


class _Attack:
    def __reduce__(self):
        return os.system, ("echo attacked",)


def test_a_pickle_is_never_code(tmp_path, capfd):
    path = tmp_path / "batch"
    path.write_bytes(pickle.dumps({b"data": _Attack()}, protocol=2))
    with pytest.raises(InputError, match=r"asks for posix\.system, which is neither array nor string"):
        safe_unpickle(path)
    assert "attacked" not in capfd.readouterr().out
    whole = pickle.dumps({b"data": np.zeros((4, 4), np.uint8)}, protocol=2)
    for end in (0, 1, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:end])
        with pytest.raises(InputError, match="cannot be read"):
            safe_unpickle(path)
    path.write_bytes(pickle.dumps([1], protocol=2))
    with pytest.raises(InputError, match="holds list, not a dictionary"):
        safe_unpickle(path)


def test_features(tmp_path):
    path = tmp_path / "features.npz"
    x, y = RNG.normal(size=(6, 3)), np.array([0, 1, 2, 0, 1, 2])
    np.savez(path, x_train=x, y_train=y, x_test=x, y_test=y, x_val=x, y_val=y, class_names=["a", "b", "c"])
    train, _, val, names = load_features(path)
    np.testing.assert_array_equal(train.x, x)
    assert val is not None
    assert names == ("a", "b", "c")
    np.savez(path, x_train=x, y_train=y, x_test=x, y_test=y)
    assert load_features(path)[2:] == (None, ("0", "1", "2"))
    np.savez(path, x_train=x, y_train=y[:4], x_test=x, y_test=y)
    with pytest.raises(InputError, match="has 4 labels for 6 samples"):
        load_features(path)
    np.savez(path, x_train=x)
    with pytest.raises(InputError, match="has no array 'y_train'"):
        load_features(path)
    np.savez(path, x_train=np.array([{}]), y_train=y, x_test=x, y_test=y)
    with pytest.raises(InputError, match=r"cannot be read as \.npz without pickles"):
        load_features(path)
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(InputError, match=r"cannot be read as \.npz"):
        load_features(path)
    with pytest.raises(InputError, match="is not there"):
        load_features(tmp_path / "absent.npz")


def test_imagenet_lists(tmp_path):
    for split in ("train", "val", "test"):
        (tmp_path / f"ImageNet_LT_{split}.txt").write_text("train/n01/a b.JPEG 0\ntrain/n02/c.JPEG 1\n")
    with pytest.raises(InputError, match=r"missing .*train/n01/a b\.JPEG, .*train/n02/c\.JPEG\. .* data\.root"):
        load_imagenet_lt(tmp_path, n_classes=2)
    for name in ("n01/a b.JPEG", "n02/c.JPEG"):
        (tmp_path / "train" / name).parent.mkdir(parents=True)
        (tmp_path / "train" / name).touch()
    train, _, _, names = load_imagenet_lt(tmp_path, n_classes=2)
    assert train.x[0] == str(tmp_path / "train/n01/a b.JPEG")
    assert (train.y.tolist(), names) == ([0, 1], ("0", "1"))
    (tmp_path / "ImageNet_LT_val.txt").unlink()
    with pytest.raises(InputError, match=r"missing ImageNet_LT_val\.txt\. The lists are linked from"):
        load_imagenet_lt(tmp_path)
    (tmp_path / "bad.txt").write_text("a.JPEG 0\nb.JPEG\n")
    with pytest.raises(InputError, match=r"line 2: 'b.JPEG' must read"):
        read_list(tmp_path / "bad.txt", tmp_path)
    (tmp_path / "bad.txt").write_text("a.JPEG 7\n")
    with pytest.raises(InputError, match="outside 0 … 1"):
        read_list(tmp_path / "bad.txt", tmp_path, 2)


@pytest.mark.data
@pytest.mark.slow
def test_the_real_releases(tmp_path):
    if not (SHARED / "data/unpack.py").exists():
        pytest.skip(f"{SHARED}/data is not there; set CAPRI_SHARED")
    subprocess.run([sys.executable, SHARED / "data/unpack.py", tmp_path], check=True, capture_output=True)
    for name, total, first in (("cifar10", 12_406, "airplane"), ("cifar100", 10_847, "apple")):
        train, test, names = load_cifar(name, tmp_path, verify=True)
        k = len(names)
        assert (train.x.shape, test.x.shape, names[0]) == ((50_000, 32, 32, 3), (10_000, 32, 32, 3), first)
        assert len(long_tail(train.y, exponential_counts(50_000 // k, k, 100), seed=0)) == total
        release = RELEASES[name]
        np.testing.assert_allclose(train.x.mean(axis=(0, 1, 2)) / 255, release.mean, atol=2e-4)
        np.testing.assert_allclose(train.x.std(axis=(0, 1, 2)) / 255, release.std, atol=2e-4)
