"""Captures of filesystems: the results are those of the same files on this machine."""
import gzip

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
