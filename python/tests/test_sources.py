"""Captures of filesystems: the results are those of the same files on this machine."""
import gzip
import socket

import pytest

import sluice
import sluice.ray
from conftest import pcap, pcapng
from sluice._sources import find

fs = pytest.importorskip("pyarrow.fs", reason="pyarrow is not installed")


@pytest.fixture
def tree(tmp_path, frames):
    files = {
        "day/one.pcap": pcap(frames),
        "day/two.pcapng": pcapng(frames),
        "day/night/three.pcap.gz": gzip.compress(pcap(frames[:100])),
        "day/night/.hidden.pcap": pcap(frames[:5]),
        "notes.txt": b"none",
    }
    folder = tmp_path / "tree"
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def subtree(tree):
    return fs.SubTreeFileSystem(str(tree), fs.LocalFileSystem())


def memory(tree):
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
    made = fsspec.filesystem("memory", skip_instance_cache=True)
    made.store.clear()
    for path in tree.rglob("*"):
        if path.is_file():
            made.pipe("/" + str(path.relative_to(tree)), path.read_bytes())
    return made


def wrapped(tree):
    return fs.PyFileSystem(fs.FSSpecHandler(memory(tree)))


def contents(folder):
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir()) if p.suffix == ".pcap"} | {"report": (folder / "report.json").read_bytes()}


@pytest.mark.parametrize("made", [subtree, memory, wrapped])
@pytest.mark.parametrize("part_bytes", [None, 20_000])
def test_the_results_are_those_of_the_same_files_here(graph, tree, tmp_path, made, part_bytes):
    inputs = ["day/*.pcap*", "day/night/three.pcap.gz"]
    local = sluice.ray.run(graph, [tree / name for name in inputs], tmp_path / "local", engine="local", part_bytes=part_bytes)
    there = sluice.ray.run(graph, inputs, tmp_path / "there", engine="local", part_bytes=part_bytes, filesystem=made(tree))
    assert contents(tmp_path / "local") == contents(tmp_path / "there")
    assert there.packets_in == local.packets_in > 4000 and (there.parts > 3) == (part_bytes is not None)


@pytest.mark.parametrize("made", [subtree, memory, wrapped, lambda tree: fs.SubTreeFileSystem("/day", wrapped(tree))])
def test_two_readers_of_a_file_each_have_their_place(tree, made, monkeypatch):
    monkeypatch.setattr("sluice._sources._PIECE", 1000)
    where = made(tree)
    (source,) = find("one.pcap" if getattr(where, "base_path", "") == "/day/" else "day/one.pcap", where)
    content = (tree / "day/one.pcap").read_bytes()
    read = [b"", b""]
    for pieces in zip(source.pieces(0, len(content)), source.pieces(0, len(content))):
        read = [r + p for r, p in zip(read, pieces)]
    assert read == [content, content] and len(content) > 10_000


def test_a_local_filesystem_and_its_uris_are_this_machines_files(tree):
    names = [s.name for s in find(tree / "day" / "*.pcap*")]
    assert names == [s.name for s in find(f"{tree}/day/*.pcap*", fs.LocalFileSystem())] and len(names) == 2
    assert names == [s.name for s in find(f"file://{tree}/day/*.pcap*")]
    assert [s.name for s in find(f"file://{tree}/day/one.pcap")] == names[:1]
    assert all(s.local for s in find(f"file://{tree}/day/*.pcap*"))


@pytest.mark.parametrize("made", [subtree, memory])
@pytest.mark.parametrize("pattern", ["**/*.pcap*", "day/**/*.gz", "day/n*/*", "d[a-b]y/o?e.pcap", "day/night/.h*", "**/night/*", "*.txt"])
def test_wildcards_are_those_of_paths(tree, made, pattern):
    found = [s.path.lstrip("/") for s in find(pattern, made(tree))]
    assert found == [str(p.path)[len(str(tree)) + 1 :] for p in find(f"{tree}/{pattern}")] and found


def test_what_cannot_be_read_is_named(graph, tree, tmp_path):
    there = subtree(tree)
    for inputs, filesystem, error, match in (
        ("day/none.pcap", there, FileNotFoundError, "none.pcap"),
        ("day/x*", there, FileNotFoundError, "x\\*"),
        ("none/x*", there, FileNotFoundError, "none"),
        ("day", there, ValueError, "day"),
        ("day/*", there, ValueError, "night"),
        ([], there, ValueError, "empty"),
        ("day/one.pcap", "s3", TypeError, "filesystem is str"),
        ("nonsense://bucket/x.pcap", None, ValueError, "nonsense"),
        (f"file://{tree}/none.pcap", None, FileNotFoundError, "none.pcap"),
    ):
        with pytest.raises(error, match=match):
            sluice.ray.run(graph, inputs, tmp_path / "out", engine="local", filesystem=filesystem)
        assert not (tmp_path / "out").exists()


class Failing(fs.FileSystemHandler if hasattr(fs, "FileSystemHandler") else object):
    """Of one file, which cannot be read as far as it is said to go."""

    def __init__(self, content, size):
        self.content, self.size = content, size

    def get_file_info(self, paths):
        return [fs.FileInfo(p, fs.FileType.File, size=self.size, mtime_ns=1) for p in paths]

    def open_input_file(self, path):
        import pyarrow

        if self.content is None:
            raise PermissionError(13, "denied by the store")
        return pyarrow.PythonFile(__import__("io").BytesIO(self.content), mode="r")

    def normalize_path(self, path):
        return path

    def get_type_name(self):
        return "failing"

    def unused(self, *_):
        raise NotImplementedError

    get_file_info_selector = create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = unused
    delete_file = move = copy_file = open_input_stream = open_output_stream = open_append_stream = unused


def test_a_store_that_fails_in_the_middle_fails_the_part(graph, frames, tmp_path):
    whole = pcap(frames)
    for content, size, match in ((None, 100, "denied by the store"), (whole[:5000], len(whole), "ends at byte")):
        store = fs.PyFileSystem(Failing(content, size))
        with pytest.raises(sluice.Error, match=match) as caught:
            sluice.ray.run(graph, "bucket/a.pcap", tmp_path / f"out{size}", engine="local", filesystem=store)
        assert "bucket/a.pcap" in str(caught.value)
        assert not list((tmp_path / f"out{size}").glob("0*")) and not (tmp_path / f"out{size}" / "report.json").exists()


def test_damage_of_a_part_is_told_by_the_captures_name(graph, frames, tmp_path):
    path = tmp_path / "cut.pcap"
    path.write_bytes(pcap(frames)[:-3])
    with pytest.raises(sluice.Error, match="cut.pcap"):
        sluice.ray.run(graph, path, tmp_path / "out", engine="local", part_bytes=20_000)


@pytest.fixture
def store():
    """An object store with a bucket of three captures, as (pyarrow's filesystem, what a URI's query says of it)."""
    server = pytest.importorskip("moto.server", reason="moto is not installed: pip install 'moto[s3]' flask flask-cors").ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    there = fs.S3FileSystem(
        access_key="key", secret_key="secret", endpoint_override=f"{host}:{port}", scheme="http", region="us-east-1", allow_bucket_creation=True
    )
    there.create_dir("bucket")
    try:
        yield there, f"region=us-east-1&scheme=http&endpoint_override={host}:{port}"
    finally:
        server.stop()


def test_captures_of_an_object_store_are_those_of_this_machine(graph, frames, tmp_path, store):
    there, query = store
    (tmp_path / "in").mkdir()
    for i, content in enumerate((pcap(frames), pcapng(frames), gzip.compress(pcap(frames[:100])))):
        (tmp_path / "in" / f"{i}.pcap").write_bytes(content)
        with there.open_output_stream(f"bucket/2026/{i}.pcap") as file:
            file.write(content)
    local = sluice.ray.run(graph, tmp_path / "in" / "*.pcap", tmp_path / "local", engine="local", part_bytes=20_000)
    for name, inputs, filesystem in (("uri", f"s3://key:secret@bucket/2026/*.pcap?{query}", None), ("filesystem", "bucket/2026/?.pcap", there)):
        got = sluice.ray.run(graph, inputs, tmp_path / name, engine="local", part_bytes=20_000, filesystem=filesystem)
        assert got.parts == local.parts > 10 and contents(tmp_path / name) == contents(tmp_path / "local")
    for text in (tmp_path / "uri" / "run.json", tmp_path / "uri" / "report.json", next((tmp_path / "uri").glob("0*.json"))):
        assert "secret" not in text.read_text()
    for path in ("bucket/2026/none.pcap", "bucket/none*.pcap", "nowhere/*.pcap"):
        with pytest.raises(FileNotFoundError, match=path.split("/")[-1].replace("*", "\\*")) as caught:
            sluice.ray.run(graph, f"s3://key:secret@{path}?{query}", tmp_path / "none", engine="local")
        assert "secret" not in str(caught.value)
    assert not (tmp_path / "none").exists()


@pytest.fixture
def google_store(monkeypatch):
    """An emulated store of Google's, with one bucket, as gcsfs sees it."""
    emulator = pytest.importorskip("gcp_storage_emulator.server", reason="gcp-storage-emulator is not installed")
    # gcsfs asks for the bucket's kind by gRPC, which the emulator does not speak.
    monkeypatch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    gcsfs = pytest.importorskip("gcsfs", reason="gcsfs is not installed")
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    server = emulator.create_server("127.0.0.1", port, in_memory=True, default_bucket="bucket")
    server.start()
    try:
        yield gcsfs.GCSFileSystem(token="anon", project="p", endpoint_url=f"http://127.0.0.1:{port}", skip_instance_cache=True)
    finally:
        server.stop()


def test_captures_of_googles_store_by_fsspec(graph, frames, tmp_path, google_store):
    (tmp_path / "in").mkdir()
    for i, content in enumerate((pcap(frames), pcapng(frames), gzip.compress(pcap(frames[:100])))):
        (tmp_path / "in" / f"{i}.pcap").write_bytes(content)
        google_store.pipe(f"bucket/2026/{i}.pcap", content)
    local = sluice.ray.run(graph, tmp_path / "in" / "*.pcap", tmp_path / "local", engine="local", part_bytes=20_000)
    got = sluice.ray.run(graph, "bucket/2026/*.pcap", tmp_path / "google", engine="local", part_bytes=20_000, filesystem=google_store)
    assert got.parts == local.parts > 10 and contents(tmp_path / "google") == contents(tmp_path / "local")
    with pytest.raises(FileNotFoundError, match="none.pcap"):
        sluice.ray.run(graph, "bucket/2026/none.pcap", tmp_path / "none", engine="local", filesystem=google_store)


def test_an_object_store_as_the_output_is_refused(graph, capture, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="output is 's3://bucket/out'"):
        sluice.ray.run(graph, capture, "s3://bucket/out", engine="local")
    assert not (tmp_path / "s3:").exists()
