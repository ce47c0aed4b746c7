"""Every reader and every command on thousands of damaged files: done, or refused in one line."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.faults

#: Texts that readers know, and what may stand in their place.
TOKENS = [b"<f8", b"|b1", b"<i8", b"<U4", b">f4", b"|O", b"<M8[s]", b"|S3", b"<c16", b"|V8", b"<f16", b"<U1", b"F64",
          b"F8_E4M3", b"BF16", b"I64", b"BOOL", b"True", b"False", b"None", b"nan", b"inf", b"1e999", b"-1", b"0",
          b"3", b"36", b"4294967296", b"99999999999999999999", b"1" + b"0" * 400, b"()", b"(3,)", b"[", b"]", b"{",
          b"}", b"'", b'"', b",", b"\n", b"\0", b"\xff", b"\xed\xa0\x80", b"\x1b[2J", b"descr", b"shape", b"dtype",
          b"data_offsets", b"fortran_order", b"cat", b"lynx", b"label", b"logits", b"=1+1", b"1_0", b"\xef\xbb\xbf",
          b"PK\x01\x02", b"PK\x05\x06", b"PAR1", b"\x80\x04", b"\\ud800", b"null", b"[[[["]  # fmt: skip
NUMBERS = [struct.pack(form, value) for form in ("<H", "<I", "<Q") for value in (0, 1, 2**15, 2**16 - 1)]
NUMBERS += [struct.pack("<I", 2**31), struct.pack("<I", 2**32 - 1), struct.pack("<Q", 2**63), struct.pack("<Q", 2**40)]


def mutate(content: bytes, rng: np.random.Generator) -> bytes:
    """One to three damages, such as disks, networks and strangers do."""
    data = bytearray(content)
    for _ in range(rng.integers(1, 4)):
        at, to = sorted(rng.integers(0, len(data) + 1, 2).tolist()) if data else (0, 0)
        to = min(to, at + int(rng.choice([1, 4, 16, 256, 10**6])))
        token = TOKENS[rng.integers(len(TOKENS))] if rng.random() < 0.7 else NUMBERS[rng.integers(len(NUMBERS))]
        match int(rng.integers(9)):
            case 0 | 1 if data:
                data[min(at, len(data) - 1)] ^= 1 << int(rng.integers(8))
            case 2:
                del data[at:to]
            case 3:
                data[at:at] = data[at:to]
            case 4:
                data[at : at + len(token)] = token
            case 5:
                data[at:at] = token
            case 6:
                known = [t for t in TOKENS if t in data]
                if known:
                    old = known[rng.integers(len(known))]
                    where = data.find(old, int(rng.integers(max(len(data), 1))))
                    where = data.find(old) if where < 0 else where
                    data[where : where + len(old)] = token
            case 7:
                data[at:to] = bytes(to - at)
            case 8:
                del data[at:]
    return bytes(data)


def mutate_inside(path: Path, rng: np.random.Generator) -> bytes:
    """Damage behind what guards a format: a member of a zip file whose checksum fits, a header whose length fits."""
    content = path.read_bytes()
    if path.suffix == ".npz":
        with zipfile.ZipFile(io.BytesIO(content)) as old:
            members = {name: old.read(name) for name in old.namelist()}
        chosen = list(members)[rng.integers(len(members))]
        part = members[chosen]
        cut = len(part) if rng.random() < 0.3 else min(128, len(part))  # mostly the header
        members[chosen] = mutate(part[:cut], rng) + part[cut:]
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])) as new:
            for name, part in members.items():
                new.writestr(name, part)
        return buffer.getvalue()
    if path.suffix == ".safetensors":
        (length,) = struct.unpack("<Q", content[:8])
        header = mutate(content[8 : 8 + length], rng)
        return struct.pack("<Q", len(header)) + header + content[8 + length :]
    if path.suffix == ".npy":
        return mutate(content[:128], rng) + content[128:]
    if path.suffix == ".parquet":
        at = int(rng.integers(max(1, len(content) - 3000), len(content)))  # the footer says what there is
        return content[:at] + mutate(content[at : at + 200], rng) + content[at + 200 :]
    return mutate(content, rng)


LABELS = ["--labels", "{good}/labels.npy"]
TUNE = ["tune", "{file}", "--method", "la", "-o", "tuned.json"]
COMMANDS = {
    "apply": ["apply", "{file}", "{good}/policy.json", "-o", "predicted.csv", "--adjusted", "adjusted.npz"],
    "evaluate": ["evaluate", "{file}", "--policy", "{good}/policy.json", "--json"],
    "tune": [*TUNE, "--class-counts", "90,30,10"],
    "compare": ["compare", "{file}", "--methods", "unadjusted,la1", "--splits", "1"],
    "fold": ["fold", "{file}", "{good}/policy.json", "-o", "folded.npz"],
    "counts": ["evaluate", "{good}/scores.npz", "--class-counts", "{file}", "--json"],
    "policy": ["apply", "{good}/scores.npz", "{file}", "--json"],
    "labels": ["evaluate", "{good}/scores.npy", "--labels", "{file}", "--json"],
    "attributes": ["tune", "{good}/scores.npz", "--method", "la", "--class-attributes", "{file}"],
    "report": ["report", "{file}", "{good}/policy.json", "{good}/others.npz", "-o", "page.html"],
    "test": ["report", "{good}/scores.npz", "{good}/policy.json", "{file}", "-o", "page.html"],
    "curve": ["report", "{good}/scores.npz", "{good}/policy.json", "--frontier", "{file}", "-o", "page.html"],
    "frontier": ["frontier", "{file}", "--method", "la", "--points", "2", "-o", "curve.json"],
    "memory": [*TUNE, "--class-counts", "90,30,10", "--memory", "1GB"],
    "folder": ["evaluate", "{here}", "--policy", "{good}/policy.json", "--json"],
    "export": ["export", "{file}", "{good}/policy.json", "-o", "tuned.onnx"],
    "abstain": ["evaluate", "{file}", "--policy", "{good}/abstaining.json", "--json"],
}
CASES = [
    *(("scores" + kind, name, n) for kind in (".npz", ".csv", ".parquet", ".safetensors", ".npy")
      for name, n in (("apply", 700), ("evaluate", 500), ("tune", 70), ("compare", 70))),
    ("packed.npz", "apply", 500), ("packed.npz", "evaluate", 300),
    ("layer.npz", "fold", 600), ("layer.safetensors", "fold", 600),
    ("policy.json", "policy", 800), ("counts.json", "counts", 400), ("counts.csv", "counts", 300),
    ("counts.csv", "attributes", 50), ("labels.npy", "labels", 400),
    ("abstaining.json", "policy", 300), ("promising.json", "policy", 300), ("scores.npz", "abstain", 300),
    ("scores.npz", "report", 60), ("others.csv", "test", 60), ("frontier.json", "curve", 200),
    ("scores.npz", "frontier", 20), ("scores.parquet", "memory", 60), ("scores.csv", "memory", 60),
    ("scores.parquet", "folder", 100), ("model.onnx", "export", 600),
]  # fmt: skip


@pytest.mark.parametrize(("name", "command", "cases"), CASES, ids=[f"{c}-{n}" for n, c, _ in CASES])
def test_damaged_files(capri, good, tally, tmp_path, name, command, cases):
    rng = np.random.default_rng([*name.encode(), *command.encode()])
    path = tmp_path / f"damaged{Path(name).suffix}"
    words = [word.format(file=path, here=tmp_path, good=good) for word in COMMANDS[command]]
    words += [w.format(good=good) for w in LABELS] if name == "scores.npy" and command != "apply" else []
    path.write_bytes((good / name).read_bytes())
    whole = capri(*words)
    assert whole.code == 0, whole
    with tally(f"damaged {Path(name).suffix} files") as check:
        for case in range(cases):
            inside = bool(rng.random() < 0.5)
            content = mutate_inside(good / name, rng) if inside else mutate((good / name).read_bytes(), rng)
            path.write_bytes(content)
            done = capri(*words)
            problem = done.problem
            if problem is None and done.code == 0 and not inside and Path(name).suffix == ".npz" and "--json" in words:
                problem = None if same(done.out, whole.out) else "other figures, in silence"
            left = [p.name for p in tmp_path.iterdir() if p.name.endswith(".part")]
            check(problem or (f"left {left}" if left else None), f"{command} {name} {case}")


def same(one: str, other: str) -> bool:
    return json.loads(one) == json.loads(other)
