"""Files that strangers made, or that a disk has damaged: one line and exit code 2, at once, never a traceback."""

import fcntl
import io
import json
import os
import pickle
import struct
import sys
import termios
import threading
import time
import zipfile

import numpy as np
import pytest

from capri import Policy, Strategy

NAMES = np.array(["cat", "dog", "lynx"])


@pytest.fixture
def refused(capri):
    """`refused(message, *arguments)`: exit code 2, and one line that holds the message."""

    def check(message, *arguments):
        done = capri(*arguments)
        assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1), done
        assert message in done.err
        return True

    return check


def npy_bytes(values):
    buffer = io.BytesIO()
    np.save(buffer, values)
    return buffer.getvalue()


def with_header(header, content=b"\0" * 48):
    """An .npy file with a header of one's own."""
    text = header.encode("latin-1")
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + content


def write_zip(path, members, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


class TestHeaders:
    @pytest.mark.parametrize(
        "header",
        [
            "{'descr': '<f8', 'fortran_order': False, 'shape': (True, 6), }",
            "{'descr': '<f8', 'fortran_order': False, 'shape': (2, -3), }",
            "{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999999999, 3), }",
            "{'descr': '<f8', 'fortran_order': False, 'shape': (4611686018427387904, 4), }",
            "{'descr': '<f8', 'fortran_order': False, 'shape': (2000000, 3), }",
            "{'descr': '<f8', 'fortran_order': False, 'shape': (1, 3), }",
            "{'descr': '<f8', 'fortran_order': 7, 'shape': (2, 3), }",
            "{'descr': '<q9', 'fortran_order': False, 'shape': (2, 3), }",
            "{'descr': ('<f8',), 'fortran_order': False, 'shape': (2, 3), }",
            "{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (2, 3), }",
            "{'descr': '<M8[s]', 'fortran_order': False, 'shape': (2, 3), }",
            "{'descr': '<U0', 'fortran_order': False, 'shape': (2, 3), }",
            "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3)",
            "{'descr': '<f8', ['shape']: (2, 3), }",
            "{b'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), 7: 8}",
            "\x00{}",
            "(" * 3000,
        ],
    )
    def test_of_arrays(self, refused, tmp_path, header):
        (tmp_path / "x.npy").write_bytes(with_header(header))
        assert refused("x.npy: ", "tune", "x.npy", "--labels", "x.npy")
        write_zip(tmp_path / "x.npz", {"logits.npy": with_header(header), "y.npy": npy_bytes(np.arange(2))})
        assert refused("x.npz: ", "tune", "x.npz")

    @pytest.mark.parametrize("point", [0x110000, 0xFFFFFFFF, 0xD800, 0xDFFF])
    def test_text_beyond_unicode(self, refused, data, tmp_path, point):
        names = NAMES.copy()
        names.view(np.uint32)[0] = point
        np.savez(tmp_path / "x.npz", logits=data[0], y=data[1], class_names=names)
        assert refused("is not text", "tune", "x.npz")

    def test_structured_labels(self, refused, data, tmp_path):
        y = np.array([(k,) for k in data[1]], dtype=[("label", int)])
        np.savez(tmp_path / "x.npz", logits=data[0], y=y)
        assert refused("plain numbers or text", "tune", "x.npz")

    @pytest.mark.parametrize("names", [np.array("cat"), NAMES[:, None], np.zeros((3, 0)), np.array([[["cat"]]])])
    def test_class_names_of_another_shape(self, refused, data, tmp_path, names):
        np.savez(tmp_path / "x.npz", logits=data[0], y=data[1], class_names=names)
        assert refused("class_names must hold one name per class", "tune", "x.npz")

    def test_labels_of_another_shape(self, refused, data, tmp_path):
        np.savez(tmp_path / "x.npz", logits=data[0], y=np.array(3))
        assert refused("must hold one label per sample", "tune", "x.npz")


class TestZip:
    def test_encrypted_members(self, refused, files, tmp_path):
        content = bytearray((files / "val.npz").read_bytes())
        for start, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
            at = content.find(start)
            while at >= 0:
                content[at + flags] |= 1
                at = content.find(start, at + 1)
        (tmp_path / "x.npz").write_bytes(content)
        assert refused("encrypted", "tune", "x.npz")

    def test_unsupported_compression(self, refused, files, tmp_path):
        content = bytearray((files / "val.npz").read_bytes())
        for start, method in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
            at = content.find(start)
            while at >= 0:
                content[at + method : at + method + 2] = b"\x63\x00"
                at = content.find(start, at + 1)
        (tmp_path / "x.npz").write_bytes(content)
        assert refused("x.npz: ", "tune", "x.npz")

    def test_an_array_that_is_there_twice(self, refused, data, tmp_path):
        with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
            archive.writestr("logits.npy", npy_bytes(data[0]))
            with pytest.warns(UserWarning, match="Duplicate name"):
                archive.writestr("logits.npy", npy_bytes(-data[0]))
        assert refused("it holds 'logits' twice", "tune", "x.npz")

    def test_members_that_are_no_arrays_are_left_alone(self, capri, data, tmp_path):
        members = {"README.txt": b"hello", "logits.npy": npy_bytes(data[0]), "y.npy": npy_bytes(data[1])}
        write_zip(tmp_path / "x.npz", members)
        assert capri("evaluate", "x.npz").code == 0

    def test_a_small_archive_that_expands_to_gigabytes(self, refused, tmp_path):
        shape = (2**14, 2**12)
        header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}"
        with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("y.npy", npy_bytes(np.zeros(shape[0], int)))
            with archive.open("logits.npy", "w", force_zip64=True) as member:
                member.write(with_header(header, b""))
                for _ in range(2**9):
                    member.write(bytes(2**20))
        started = time.monotonic()
        assert refused("logits would take 0.5 GB in memory", "tune", "x.npz")
        assert time.monotonic() - started < 5

    def test_what_compresses_well_is_read(self, capri, data, tmp_path):
        zeros = np.zeros((200_000, 3))
        zeros[:90] = data[0]
        y = np.resize(data[1], len(zeros))
        np.savez_compressed(tmp_path / "x.npz", logits=zeros, y=y)
        assert capri("evaluate", "x.npz").code == 0


class TestSafetensors:
    def write(self, path, header, content):
        text = json.dumps(header).encode()
        path.write_bytes(struct.pack("<Q", len(text)) + text + content)

    @pytest.mark.parametrize("kind", ["F8_E4M3", "F8_E5M2", "BF16", "F4", "WHAT"])
    def test_of_other_numbers(self, refused, tmp_path, kind):
        pytest.importorskip("safetensors")
        size = {"BF16": 24, "F4": 6}.get(kind, 12)
        self.write(tmp_path / "x.safetensors", {"logits": {"dtype": kind, "shape": [4, 3], "data_offsets": [0, size]}},
                   bytes(size))  # fmt: skip
        assert refused("x.safetensors: ", "tune", "x.safetensors")

    def test_that_promise_more_than_they_hold(self, refused, tmp_path):
        pytest.importorskip("safetensors")
        entry = {"dtype": "F64", "shape": [2**40, 3], "data_offsets": [0, 3 * 2**43]}
        self.write(tmp_path / "x.safetensors", {"logits": entry}, bytes(48))
        assert refused("x.safetensors: ", "tune", "x.safetensors")


class TestPlaces:
    """Only regular files end, and stay as they are between one look and the next."""

    @pytest.mark.parametrize("name", ["x.csv", "x.npz", "x.npy", "x.parquet", "x.safetensors"])
    def test_a_pipe_is_refused_at_once(self, refused, tmp_path, name):
        os.mkfifo(tmp_path / name)
        assert refused(f"{name}: is not a regular file; for standard input give -", "tune", name)

    @pytest.mark.parametrize("name", ["x.csv", "x.npz", "x.npy", "x.parquet", "x.safetensors"])
    def test_a_device_is_refused_at_once(self, refused, tmp_path, name):
        (tmp_path / name).symlink_to("/dev/zero")
        assert refused(f"{name}: is not a regular file", "tune", name)

    @pytest.mark.parametrize("target", ["/dev/zero", None])
    def test_as_a_policy_or_a_list(self, refused, files, tmp_path, target):
        for name in ("x.json", "x.txt"):
            if target is None:
                os.mkfifo(tmp_path / name)
            else:
                (tmp_path / name).symlink_to(target)
            assert refused(f"{name}: is not a regular file", "tune", files / "val.npz", "--class-counts", name)
        assert refused("x.json: is not a regular file", "apply", files / "val.npz", "x.json")

    def test_a_text_of_any_length_is_not_read(self, refused, files, tmp_path):
        for name in ("x.json", "x.txt"):
            with (tmp_path / name).open("wb") as stream:
                stream.truncate(2**33)  # takes no room
            assert refused(f"{name}: is too large", "tune", files / "val.npz", "--class-counts", name)
        assert refused("x.json: is too large", "apply", files / "val.npz", "x.json")

    def test_deep_json(self, refused, files, tmp_path):
        (tmp_path / "x.json").write_text("[" * 100_000)
        assert refused("x.json: not JSON", "tune", files / "val.npz", "--class-counts", "x.json")


def _waiting_in(pipe):
    return struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0]


def npz_bytes(**arrays):
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


class TestStandardInput:
    @pytest.fixture
    def given(self, monkeypatch):
        def give(content):
            stream = io.TextIOWrapper(io.BufferedReader(io.BytesIO(content)))
            monkeypatch.setattr(sys, "stdin", stream)

        return give

    @pytest.mark.parametrize("name", ["val.csv", "val.npz", "val.parquet"])
    def test_is_read_as_the_file_would_be(self, capri, files, data, given, tmp_path, name):
        path = files / name
        if name == "val.parquet":
            pandas = pytest.importorskip("pandas")
            path = tmp_path / name
            pandas.read_csv(files / "val.csv").to_parquet(path)
        given(path.read_bytes())
        piped = capri("evaluate", "-", "--json")
        assert piped.code == 0, piped
        assert json.loads(piped.out)["classes"] == json.loads(capri("evaluate", path, "--json").out)["classes"]

    @pytest.fixture
    def dripped(self, monkeypatch):
        """A pipe that holds one byte at a time, for the first hundred."""
        writers = []

        def write(handle, content):
            with os.fdopen(handle, "wb", buffering=0) as pipe:
                for k in range(100):
                    pipe.write(content[k : k + 1])
                    patience = time.monotonic() + 10
                    while _waiting_in(handle) and time.monotonic() < patience:
                        time.sleep(0.0005)
                pipe.write(content[100:])

        def give(content):
            read, handle = os.pipe()
            monkeypatch.setattr(sys, "stdin", os.fdopen(read))
            writers.append(threading.Thread(target=write, args=(handle, content), daemon=True))
            writers[-1].start()

        yield give
        sys.stdin.close()
        for writer in writers:
            writer.join(10)

    @pytest.mark.parametrize("name", ["val.csv", "val.npz", "scores.npy"])
    def test_may_come_byte_by_byte(self, capri, files, dripped, name):
        labels = ["--labels", files / "labels.npy"] if name == "scores.npy" else []
        dripped((files / name).read_bytes())
        piped = capri("evaluate", "-", "--json", *labels)
        assert piped.code == 0, piped
        whole = json.loads(capri("evaluate", files / name, "--json", *labels).out)
        assert json.loads(piped.out)["classes"] == whole["classes"]

    def test_decides(self, capri, files, policy, given):
        given((files / "scores.npy").read_bytes())
        assert capri("apply", "-", policy).out == capri("apply", files / "scores.npy", policy).out

    @pytest.mark.parametrize(
        ("places", "arguments"),
        [
            ("SCORES and --unlabelled", ["tune", "-", "--unlabelled", "-"]),
            ("SCORES and --labels", ["tune", "-", "--labels", "-"]),
            ("SCORES and --class-attributes", ["tune", "-", "--class-attributes", "-"]),
            ("SCORES, --labels and --unlabelled", ["tune", "-", "--labels", "-", "--unlabelled", "-"]),
            ("SCORES and --labels", ["evaluate", "-", "--labels", "-"]),
            ("SCORES and --policy", ["evaluate", "-", "--policy", "-"]),
            ("SCORES and --labels", ["compare", "-", "--labels", "-"]),
            ("SCORES and POLICY", ["apply", "-", "-"]),
            ("LAYER and POLICY", ["fold", "-", "-", "-o", "folded.npz"]),
        ],
    )
    def test_is_there_once(self, refused, files, given, places, arguments):
        given((files / "val.npz").read_bytes())
        assert refused(f"- is given for {places}; standard input can be read once", *arguments)
        assert sys.stdin.buffer.tell() == 0  # before anything is read

    @pytest.mark.parametrize(
        "arguments", [["apply", "val.npz", "-"], ["evaluate", "val.npz", "--policy", "-"], ["fold", "val.npz", "-"]]
    )
    def test_is_no_policy(self, refused, files, given, policy, arguments):
        given(policy.read_bytes())
        command, scores, *rest = arguments
        output = ["-o", "folded.npz"] if command == "fold" else []
        assert refused(
            "a policy is not read from standard input; give its file", command, files / scores, *rest, *output
        )

    @pytest.mark.parametrize(("name", "title"), [("val.csv", "standard input"), ("val.npz", "standard input: logits")])
    @pytest.mark.parametrize("command", ["tune", "evaluate", "compare"])
    def test_has_a_name(self, capri, files, given, command, name, title):
        more = {
            "tune": ["--method", "la", "--class-counts", "9,3,1"],
            "compare": ["--methods", "unadjusted,la1", "--splits", "1"],
        }
        given((files / name).read_bytes())
        assert capri(command, "-", *more.get(command, [])).out.startswith(f"{title} · 90 samples · 3 classes")

    @pytest.mark.parametrize(
        ("content", "message", "arguments"),
        [
            ("logits", "standard input: holds no scores under scores (it holds x)", ["tune", "-"]),
            ("logits", "standard input: --scores-key is 'z', which is not in", ["tune", "-", "--scores-key", "z"]),
            ("csv", "standard input: no column begins with 'z'", ["tune", "-", "--scores-key", "z"]),
            ("csv", "standard input: holds 'cat, dog'", ["tune", "scores.npy", "--labels", "-"]),
            ("csv", "standard input: 1 rows for 3 classes", ["tune", "val.npz", "--class-attributes", "-"]),
            ("csv", "standard input: holds columns, not a layer", ["fold", "-", "policy.json", "-o", "folded.npz"]),
        ],
    )
    def test_has_a_name_in_messages(self, refused, files, policy, given, content, message, arguments):
        contents = {"csv": b"cat,dog\n1,2\n", "logits": npz_bytes(x=np.zeros((2, 3)))}
        given(contents[content])
        inside = [files / a if a in ("scores.npy", "val.npz", "policy.json") else a for a in arguments]
        assert refused(message, *inside)

    def test_may_never_end(self, refused, given, monkeypatch):
        monkeypatch.setattr("capri.cli.tables.MOST", 100)
        given(b"0,1\n" * 1000)
        assert refused("standard input is longer than 0 MiB; save it as a file", "tune", "-")

    def test_may_be_closed(self, refused, monkeypatch):
        monkeypatch.setattr(sys, "stdin", None)
        assert refused("standard input is closed", "tune", "-")

    @pytest.mark.parametrize(
        "content",
        [
            struct.pack("<Q", 32) + b'{"logits": {"dtype": "F64", "sh',
            b"\x1f\x8b\x08 zipped",
            "cat,dog".encode("utf-16"),
        ],
        ids=["safetensors", "gzip", "UTF-16"],
    )
    def test_of_another_format_is_told_which_it_may_have(self, refused, given, content):
        given(content)
        assert refused(
            "standard input: is neither .npz, .npy, .parquet nor .csv in UTF-8, by its beginning", "tune", "-"
        )

    def test_is_no_pickle(self, refused, given):
        given(pickle.dumps({"logits": [1, 2]}))
        assert refused("standard input: holds pickled Python objects", "tune", "-")

    @pytest.mark.parametrize("content", [b"", b"\x00\xff\xfe", b"PK\x03\x04 and nothing"])
    def test_may_be_bad(self, refused, given, content):
        given(content)
        assert refused("standard input: ", "tune", "-")


class TestWideTables:
    def test_many_columns_take_no_quadratic_time(self, capri, tmp_path):
        names = [f"c{k}" for k in range(60_000)]
        rows = [",".join([*names, "label"]), *(",".join(["0.5"] * len(names) + [names[k]]) for k in range(2))]
        (tmp_path / "x.csv").write_text("\n".join(rows))
        Policy(Strategy.of(len(names)), "balanced", tuple(names[::-1])).save(tmp_path / "p.json")
        started = time.monotonic()
        done = capri("apply", "x.csv", "p.json")
        assert (done.code, done.out) == (0, "prediction\nc59999\nc59999\n"), done.err
        assert time.monotonic() - started < 20

    def test_a_column_that_is_there_twice_is_found(self, refused, tmp_path):
        names = [*(f"c{k}" for k in range(60_000)), "c59999"]
        (tmp_path / "x.csv").write_text(",".join(names))
        assert refused("the column 'c59999' occurs twice", "tune", "x.csv")

    def test_numbers_that_are_not_in_latin_digits_or_too_large(self, refused, tmp_path):
        (tmp_path / "x.csv").write_text("a,b,label\n1e999,1,a\n1,2,b\n")
        assert refused("is inf", "tune", "x.csv")


def test_memory_that_is_not_there_is_one_line(refused, files, monkeypatch):
    def none_left(*_, **__):
        raise MemoryError

    monkeypatch.setattr("capri.cli.options.read_stream", none_left)
    assert refused("not enough memory", "evaluate", files / "val.npz")
