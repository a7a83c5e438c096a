#!/usr/bin/env python3
"""libsluice as whoever builds with it finds it.

    library_test.py BUILD

The shared library exports the names of src/api/symbols.txt, each of which the header declares, and nothing else; dlopen takes it
wherever other libraries have been before. The
component `devel` is installed below a temporary prefix, and goes away again; the examples are compiled against that, by pkg-config, by
find_package and with the archive, and run.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples/library"
FILES = {
    "include/sluice/sluice.h",
    "lib/libsluice.a",
    "lib/libsluice.so",
    "lib/libsluice.so.0",
    "lib/libsluice.so.{version}",
    "lib/pkgconfig/sluice.pc",
    "lib/cmake/sluice/sluice-config.cmake",
    "lib/cmake/sluice/sluice-config-version.cmake",
}
STRICT = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-D_POSIX_C_SOURCE=200809L"]
TUPLES = "6 10.0.0.1 1024 192.0.2.7 443\n6 10.0.0.1 1024 192.0.3.7 443\n17 10.0.0.1 1024 1.1.1.1 53\n17 10.0.0.1 1 1.1.1.1 54\n"
CLASSIFIED = """permit  rule 2 at edge.acl:1: permit tcp from 0.0.0.0/0 to 192.0.2.0/24 port 443
deny  rule 4 at edge.acl:3: deny tcp from any to any
permit  rule 3 at edge.acl:2: permit udp from any to any port 53
none
"""
ROUTED = """out   60 bytes to 192.0.2.7, TTL 63
out   60 bytes to 198.51.100.1, TTL 63
drop  packet 2: acl-deny at acl
drop  packet 4: no-route at route
drop  packet 5: ttl-expired at ttl
5 in + 0 made = 2 out + 3 dropped
"""


def run(*words, **options):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=1500, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def expect(what, got, want):
    if got != want:
        sys.exit(f"{what}: {got!r}, not {want!r}")


def same(what, got, want):
    if got != want:
        sys.exit(f"{what}: missing {sorted(want - got)}, besides {sorted(got - want)}")


def symbols(library):
    want = (ROOT / "src/api/symbols.txt").read_text().split()
    if want != sorted(set(want)):
        sys.exit("src/api/symbols.txt is not sorted")
    lines = [line.split() for line in run("nm", "-D", "--defined-only", library).splitlines()]
    same("exported", {name for _, kind, name in lines if kind != "A"}, set(want))
    header = (ROOT / "include/sluice/sluice.h").read_text()
    declared = set(re.findall(r"\b(sluice_\w+)\(", re.sub(r"/\*.*?\*/", "", header, flags=re.S)))
    same("declared", declared, {name.split("@")[0] for name in want})


def opened_late(library, folder, include):
    """By dlopen, alone and where other libraries have taken all room for thread-local words of a fixed place."""
    if "STATIC_TLS" in run("readelf", "-d", library):
        sys.exit("the library has thread-local words of a fixed place (STATIC_TLS): dlopen has little room for such")
    run("cc", *STRICT, ROOT / "tests/library_dlopen.c", f"-I{include}", "-o", folder / "late", "-ldl", "-pthread")
    # The loader keeps some KiB for them: large ones as far as they fit, and smaller ones into what is left.
    rooms = []
    for size in (1024, 64, 8):
        source, first = folder / f"room{size}.c", folder / f"room{size}.so"
        source.write_text(f'static __thread char room[{size}] __attribute__((tls_model("initial-exec")));\nchar* room_of(int i) {{ return room + i; }}\n')
        run("cc", "-shared", "-fPIC", source, "-o", first)
        for i in range(32):
            rooms.append(shutil.copy(first, folder / f"room{size}_{i}.so"))
    expect("opened alone", run(folder / "late", library), "opened after 0 libraries\n")
    said = run(folder / "late", library, *rooms)
    if int(said.split()[2]) == 0:
        sys.exit(f"no library took room: {said}")


def run_examples(prefix, folder, flags, environment, name):
    for example in ("five_tuples", "router"):
        run("cc", *STRICT, EXAMPLES / f"{example}.c", "-o", folder / f"{example}{name}", *flags)
    options = {"cwd": EXAMPLES, "env": environment}
    expect("five_tuples", run(folder / f"five_tuples{name}", "edge.acl", input=TUPLES, **options), CLASSIFIED)
    expect("router", run(folder / f"router{name}", "router.click", **options), ROUTED)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    build = pathlib.Path(sys.argv[1]).resolve()
    lacking = [name for name in ("cc", "cmake", "nm", "pkg-config", "readelf") if not shutil.which(name)]
    if lacking:
        print(f"no {', '.join(lacking)} here")
        return 77
    with tempfile.TemporaryDirectory(prefix="sluice-library-") as name:
        folder = pathlib.Path(name)
        prefix = folder / "prefix"
        # What an installation by hand has left is its own.
        manifest = build / "install_manifest_devel.txt"
        kept = manifest.read_bytes() if manifest.exists() else None
        try:
            run("cmake", "--install", build, "--component", "devel", "--prefix", folder / "removed")
            run("cmake", "--build", build, "--target", "uninstall_devel")
            same("after uninstalling", {str(p) for p in (folder / "removed").rglob("*") if not p.is_dir()}, set())
            run("cmake", "--install", build, "--component", "devel", "--prefix", prefix)
        finally:
            if kept is not None:
                manifest.write_bytes(kept)
            else:
                manifest.unlink(missing_ok=True)
        version = run("pkg-config", "--modversion", prefix / "lib/pkgconfig/sluice.pc").strip()
        same("the component devel", {str(p.relative_to(prefix)) for p in prefix.rglob("*") if not p.is_dir()},
             {file.format(version=version) for file in FILES})
        symbols(prefix / "lib/libsluice.so.0")
        opened_late(prefix / "lib/libsluice.so.0", folder, prefix / "include")
        header = (ROOT / "include/sluice/sluice.h").read_text()
        numbers = [re.search(rf"SLUICE_VERSION_{part} (\d+)", header)[1] for part in ("MAJOR", "MINOR", "PATCH")]
        expect("the header's version", ".".join(numbers), version)
        run("cc", *STRICT, "-c", ROOT / "src/api/abi_test.c", f"-I{prefix}/include", "-o", folder / "abi.o")
        environment = dict(os.environ, PKG_CONFIG_PATH=str(prefix / "lib/pkgconfig"), LD_LIBRARY_PATH=str(prefix / "lib"))
        shared = run("pkg-config", "--cflags", "--libs", "sluice", env=environment).split()
        run_examples(prefix, folder, shared, environment, "")
        run("cc", "-Wall", "-Werror", ROOT / "tests/library_memory.c", "-rdynamic", "-o", folder / "memory", *shared)
        run(folder / "memory", env=environment)
        # The archive alone, beside what pkg-config says that it needs.
        (prefix / "lib/libsluice.so").unlink()
        static = run("pkg-config", "--static", "--cflags", "--libs", "sluice", env=environment).split()
        plain = {key: value for key, value in environment.items() if key != "LD_LIBRARY_PATH"}
        run_examples(prefix, folder, static, plain, "_static")
        run("cmake", "-S", EXAMPLES, "-B", folder / "channel", f"-DCMAKE_PREFIX_PATH={prefix}")
        run("cmake", "--build", folder / "channel")
        expect("channel", run(folder / "channel/channel", "edge.acl", cwd=EXAMPLES), "3398 of 10000 permitted\n")
    print("library: exports what it says, links in three ways, and the examples run")
    return 0


if __name__ == "__main__":
    sys.exit(main())
