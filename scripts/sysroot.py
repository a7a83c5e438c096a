#!/usr/bin/env python3
"""Lays Debian's libraries for another machine into a folder, for cross compilation and for running what it makes.

    scripts/sysroot.py build/sysroot-aarch64

The packages and what they depend on come from the archives that apt is set up for, by an apt state of the folder's own:
nothing of the system is changed, and no root is needed. A folder that has them already is left as it is.
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

# What ./dev installs for the build itself (PACKAGES), less tools; libbenchmark-dev is left out, as nothing measures there.
PACKAGES = """libc6-dev libstdc++6 libfmt-dev libspdlog-dev nlohmann-json3-dev libcli11-dev libtomlplusplus-dev liburcu-dev
libpcap0.8-dev zlib1g-dev libbz2-dev liblzma-dev libzstd-dev libmnl-dev libbpf-dev libgtest-dev libgmock-dev
librapidcheck-dev""".split()
# Parts of packages' dependencies that a folder of libraries has no use for.
TOOLS = ("dpkg", "sed", "tar", "pkg-config", "pkgconf", "pkgconf-bin", "xml-core", "sgml-base")


def fetch(arch, state):
    """The packages' files, fetched by apt into `state`."""
    for folder in ("state/lists/partial", "cache/archives/partial"):
        (state / folder).mkdir(parents=True)
    (state / "state/status").touch()
    options = [f"APT::Architecture={arch}", f"APT::Architectures={arch}", f"Dir::State={state}/state",
               f"Dir::State::status={state}/state/status", f"Dir::Cache={state}/cache", "APT::Sandbox::User=root"]
    apt = ["apt-get", "-q", *[word for option in options for word in ("-o", option)]]
    # Errors of a list that cannot be read are warnings to apt, and the install below then says which package it lacks.
    subprocess.run([*apt, "update"], check=True)
    subprocess.run([*apt, "install", "-y", "--no-install-recommends", "--download-only", *PACKAGES], check=True)
    return sorted((state / "cache/archives").glob("*.deb"))


def point_inside(root):
    """Absolute links of `root` are relative ones afterwards: linkers and loaders would follow them out of the folder."""
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = pathlib.Path(folder) / name
            if not path.is_symlink():
                continue
            target = os.readlink(path)
            if target.startswith("/"):
                path.unlink()
                path.symlink_to(os.path.relpath(f"{root}{target}", folder))


def lay(archives, root):
    """Unpacks `archives` into `root`, which is merged: lib is usr/lib."""
    (root / "usr/lib").mkdir(parents=True)
    (root / "lib").symlink_to("usr/lib")
    for archive in archives:
        if archive.name.split("_")[0] in TOOLS:
            continue
        # By tar, which keeps the link above: dpkg-deb -x puts a folder in its place.
        packed = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(archive)], stdout=subprocess.PIPE)
        subprocess.run(["tar", "-x", "--keep-directory-symlink", "--no-same-owner", "-C", str(root), "--exclude=./usr/share/doc",
                        "--exclude=./usr/share/man", "--exclude=./usr/share/locale"], stdin=packed.stdout, check=True)
        packed.stdout.close()
        if packed.wait() != 0:
            raise subprocess.CalledProcessError(packed.returncode, packed.args)
    point_inside(root)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--arch", default="arm64", help="as Debian names it (arm64)")
    arguments = parser.parse_args()
    stamp = f"{arguments.arch}: {' '.join(PACKAGES)}\n"
    told = arguments.folder / "packages.txt"
    if told.is_file() and told.read_text() == stamp:
        return 0
    folder = arguments.folder.absolute()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        work = pathlib.Path(work)
        root = work / "root"
        lay(fetch(arguments.arch, work / "apt"), root)
        (root / "packages.txt").write_text(stamp)
        if folder.exists():
            shutil.rmtree(folder)
        root.rename(folder)
    print(f"sysroot: {arguments.arch} in {arguments.folder}", flush=True)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"sysroot: {error}", file=sys.stderr)
        sys.exit(1)
