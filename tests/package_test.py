#!/usr/bin/env python3
"""What is installed, and that it goes away again.

    package_test.py BUILD

The Debian packages of the build are made, looked at by lintian where it is installed, put into an empty root by dpkg and
purged; `cmake --install` and the target `uninstall` do the same under a prefix. Both bring what packages of such a program have and nothing else, the program is
stripped and runs, another program's `click` stays, and afterwards nothing is left. Exit code 77: no dpkg here.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

FILES = {
    "bin/sluice",
    "share/man/man1/sluice.1.gz",
    "share/bash-completion/completions/sluice",
    "share/zsh/{zsh}/_sluice",
    "share/fish/vendor_completions.d/sluice.fish",
    "share/doc/sluice/copyright",
    "share/doc/sluice/changelog.gz",
}
# What only the package brings, below its root.
CONFFILES = {"etc/sluice/sluice.toml", "etc/sluice/edge.acl", "etc/sluice/routes.txt"}
UNIT = "lib/systemd/system/sluice.service"
EXAMPLES = {"share/doc/sluice/examples/sluice.json"}
BENCH_FILES = {
    "share/doc/sluice-bench/changelog.gz",
    "bin/sluice-bench",
    "share/man/man1/sluice-bench.1.gz",
    "share/bash-completion/completions/sluice-bench",
    "share/doc/sluice-bench/copyright",
}
# Where the build has DPDK.
DPDK_FILES = {
    "share/doc/sluice-dpdk/changelog.gz",
    "lib/sluice/libsluice_dpdk.so",
    "share/doc/sluice-dpdk/copyright",
}
# {version}: the library itself.
LIBRARY_FILES = {
    "{version}",
    "lib/libsluice.so.0",
    "lib/libsluice.so",
    "lib/libsluice.a",
    "lib/pkgconfig/sluice.pc",
    "lib/cmake/sluice/sluice-config.cmake",
    "lib/cmake/sluice/sluice-config-version.cmake",
    "include/sluice/sluice.h",
    "share/doc/libsluice0/copyright",
    "share/doc/libsluice0/changelog.gz",
    "share/lintian/overrides/libsluice0",
    "share/doc/libsluice-dev/copyright",
    "share/doc/libsluice-dev/changelog.gz",
    "share/lintian/overrides/libsluice-dev",
}


SOURCE = pathlib.Path(__file__).resolve().parent.parent


def run(*words, **options):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def files(folder):
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if not p.is_dir()}


def expect(what, got, want):
    if got != want:
        sys.exit(f"{what}: missing {sorted(want - got)}, besides {sorted(got - want)}")


def is_stripped(file):
    if ".symtab" in run("readelf", "-S", "-W", file):
        sys.exit(f"{file} is not stripped")


def look_at_program(program):
    if not run(program, "--version").startswith("sluice "):
        sys.exit(f"{program} does not run")
    is_stripped(program)
    if "librte" in run("readelf", "-d", "-W", program):
        sys.exit(f"{program} needs DPDK")


def files_of(build, zsh):
    """What belongs under the prefix; with DPDK, what is its module's."""
    dpdk = DPDK_FILES if (build / "libsluice_dpdk.so").exists() else set()
    return {name.format(zsh=zsh) for name in FILES}, dpdk


def lint(debs):
    """Errors and warnings of Debian's checks fail."""
    if not shutil.which("lintian"):
        print("no lintian here: the packages are not checked by it (apt-get install lintian)")
        return
    run("lintian", "--fail-on", "error,warning", "--allow-root", *debs)


def look_at_service(root, folder):
    """The unit, as systemd reads it, and the configuration that it names, as the program reads it."""
    expect("conffiles", {str(p.relative_to(root)) for p in (root / "etc").rglob("*") if p.is_file()}, CONFFILES)
    words = (root / UNIT).read_text().split()
    if "/etc/sluice/sluice.toml" not in words or "WantedBy=multi-user.target" not in words:
        sys.exit("the unit does not run the configuration that the package brings")
    wants = [p for p in (root / "etc").rglob("*.service")]
    if wants:
        sys.exit(f"the unit is enabled by the installation: {wants}")
    # Its names begin at the root in which it is installed.
    moved = folder / "sluice.toml"
    text = (root / "etc/sluice/sluice.toml").read_text().replace("/etc/sluice", str(root / "etc/sluice"))
    # The example's interfaces are another machine's.
    moved.write_text(re.sub(r"\b(eth\d)", r"af_packet:\1", text))
    checked = run(root / "usr/bin/sluice", "check", moved)
    if "edge.acl" not in checked or "routes.txt" not in checked:
        sys.exit(f"the example configuration names neither rules nor routes: {checked}")
    if not shutil.which("systemd-analyze"):
        print("no systemd-analyze here: the unit is not verified (apt-get install systemd)")
        return
    # Units that it names are systemd's own.
    (root / "etc/systemd/system").mkdir(parents=True)
    for name in ("network.target", "sysinit.target", "basic.target", "shutdown.target", "multi-user.target"):
        (root / "etc/systemd/system" / name).write_text("[Unit]\nDescription=of the test\n")
    try:
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", f"--root={root}", "sluice.service"], capture_output=True, text=True)
        if done.returncode != 0 or "sluice" in done.stderr:
            sys.exit(f"systemd-analyze verify: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        # In tenths: 0 is closed, 100 open.
        run("systemd-analyze", "security", "--offline=true", f"--root={root}", "--threshold=30", "sluice.service")
    finally:
        shutil.rmtree(root / "etc/systemd")


def container(debs):
    """No engine builds it here; the packages, files and options that it names are there."""
    text = (SOURCE / "packaging/container/Containerfile").read_text().replace("\\\n", " ")
    copied = re.findall(r"^COPY (?:--\S+ )*(\S+) ", text, re.M)
    for name in copied:
        if not name.startswith("/") and not (SOURCE / name).exists():
            sys.exit(f"Containerfile copies {name}, which is not there")
    named = set(re.findall(r"/packages/([a-z0-9-]+)_\*\.deb", text))
    if not named or named - set(debs):
        sys.exit(f"Containerfile installs {sorted(named)}; there are {sorted(debs)}")
    if "./dev package" not in text or not re.search(r"^USER (?!root|0)\S+$", text, re.M):
        sys.exit("Containerfile does not build the packages, or runs as root")
    entry = re.search(r'^ENTRYPOINT \["/usr/bin/sluice"\]$', text, re.M)
    command = re.search(r"^CMD \[(.*)\]$", text, re.M)
    if not entry or not command or '"/etc/sluice/sluice.toml"' not in command.group(1):
        sys.exit("Containerfile does not run the configuration of the package")


def package(build, folder):
    run("cpack", "-G", "DEB", "-B", folder / "made", "--config", build / "CPackConfig.cmake")
    want, dpdk = files_of(build, "vendor-completions")
    debs = {deb.name.split("_")[0]: deb for deb in (folder / "made").glob("*.deb")}
    expect("packages", set(debs), {"sluice", "sluice-bench", "libsluice0", "libsluice-dev"} | ({"sluice-dpdk"} if dpdk else set()))
    lint(debs.values())
    container(debs)
    root = folder / "root"
    for name in ("updates", "info", "parts"):
        (root / "var/lib/dpkg" / name).mkdir(parents=True)
    (root / "var/lib/dpkg/status").touch()
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/click").write_text("another's\n")
    dpkg = ["dpkg", f"--root={root}", f"--log={folder}/log", "--force-not-root", "--force-depends", "--force-script-chrootless"]
    run(*dpkg, "-i", debs["sluice"])
    want = want | EXAMPLES
    expect("sluice", files(root / "usr"), want | {"bin/click"})
    look_at_service(root, folder)
    look_at_program(root / "usr/bin/sluice")
    run("lexgrog", root / "usr/share/man/man1/sluice.1.gz")
    depends = run("dpkg-deb", "-f", debs["sluice"], "Depends")
    if "rte" in depends:
        sys.exit(f"the program's package needs DPDK: {depends}")
    if dpdk:
        depends = run("dpkg-deb", "-f", debs["sluice-dpdk"], "Depends")
        if "sluice (= " not in depends or "librte-eal" not in depends:
            sys.exit(f"the module's package does not need both sides: {depends}")
        run(*dpkg, "-i", debs["sluice-dpdk"])
        expect("with sluice-dpdk", files(root / "usr"), want | dpdk | {"share/lintian/overrides/sluice-dpdk", "bin/click"})
        is_stripped(root / "usr/lib/sluice/libsluice_dpdk.so")
        run(*dpkg, "--purge", "sluice-dpdk")
    bench(debs, dpkg, root, want | {"bin/click"})
    removed(debs, dpkg, root)
    library(debs, dpkg, root)
    expect("after purging", files(root / "usr"), {"bin/click"})


def removed(debs, dpkg, root):
    """What an operator wrote outlives an upgrade and a removal, and nothing outlives a purge."""
    configuration = root / "etc/sluice/sluice.toml"
    configuration.write_text(configuration.read_text() + "# the operator's\n")
    (root / "etc/sluice/mine.acl").write_text("permit ip from any to any\n")
    (root / "var/lib/private/sluice").mkdir(parents=True)
    run(*dpkg, "--force-confold", "-i", debs["sluice"])
    run(*dpkg, "--remove", "sluice")
    if (root / UNIT).exists() or not configuration.read_text().endswith("# the operator's\n"):
        sys.exit("removing takes the configuration, or leaves the unit")
    run(*dpkg, "--purge", "sluice")
    for left in ("etc/sluice", "var/lib/private/sluice", "var/lib/sluice", "lib/systemd"):
        if (root / left).exists():
            sys.exit(f"after purging /{left} is there: {files(root / left)}")


def bench(debs, dpkg, root, want):
    """The package of the benchmarks: `sluice bench` names it where it is absent, and is it where it is there."""
    program = root / "usr/bin/sluice"
    done = subprocess.run([program, "bench", "--help"], capture_output=True, text=True, env={"PATH": "/nonexistent"})
    if done.returncode != 4 or "sluice-bench" not in done.stderr or "install" not in done.stderr:
        sys.exit(f"sluice bench without sluice-bench: exit code {done.returncode}\n{done.stderr}")
    if "sluice (= " not in run("dpkg-deb", "-f", debs["sluice-bench"], "Depends"):
        sys.exit("sluice-bench does not need sluice of the same version")
    run(*dpkg, "-i", debs["sluice-bench"])
    expect("with sluice-bench", files(root / "usr"), want | BENCH_FILES)
    is_stripped(root / "usr/bin/sluice-bench")
    if run(program, "bench", "--help") != run(root / "usr/bin/sluice-bench", "--help"):
        sys.exit("sluice bench is not sluice-bench")
    run(*dpkg, "--purge", "sluice-bench")


def library(debs, dpkg, root):
    """The library's two packages, which need nothing of the program's."""
    depends = {name: run("dpkg-deb", "-f", debs[name], "Depends") for name in ("libsluice0", "libsluice-dev")}
    if "libc6" not in depends["libsluice0"] or "sluice (" in depends["libsluice0"]:
        sys.exit(f"libsluice0 depends on the wrong things: {depends['libsluice0']}")
    if "libsluice0 (= " not in depends["libsluice-dev"]:
        sys.exit(f"libsluice-dev does not need its library: {depends['libsluice-dev']}")
    run(*dpkg, "-i", debs["libsluice0"], debs["libsluice-dev"])
    found = files(root / "usr") - {"bin/click"}
    version = next(name for name in found if name.startswith("lib/libsluice.so.0."))
    expect("libsluice", found, {name.format(version=version) for name in LIBRARY_FILES})
    is_stripped(root / "usr" / version)
    run(*dpkg, "--purge", "libsluice-dev", "libsluice0")


def is_built(build):
    """The target `installed`, which `./dev demo` builds, makes every program and module that an installation takes."""
    taken = re.findall(r'TYPE (?:EXECUTABLE|MODULE) FILES "([^"]+)"', (build / "cmake_install.cmake").read_text())
    made = {str(build / name.strip()) for name in run("ninja", "-C", build, "-t", "query", "installed").split("\n")}
    if not taken or set(taken) - made:
        sys.exit(f"the target installed does not build {sorted(set(taken) - made) or 'anything'}")


def by_hand(build, folder):
    prefix = folder / "prefix"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin/click").write_text("another's\n")
    manifest = build / "install_manifest.txt"
    kept = manifest.read_bytes() if manifest.exists() else None
    try:
        run("cmake", "--install", build, "--prefix", prefix)
        want, dpdk = files_of(build, "site-functions")
        expect("cmake --install", files(prefix), want | dpdk | BENCH_FILES | {"bin/click"})
        look_at_program(prefix / "bin/sluice")
        run("cmake", "--build", build, "--target", "uninstall")
        expect("after uninstalling", files(prefix), {"bin/click"})
    finally:
        if kept is not None:
            manifest.write_bytes(kept)
        else:
            manifest.unlink(missing_ok=True)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    lacking = [name for name in ("cpack", "dpkg", "dpkg-deb", "dpkg-shlibdeps", "readelf", "lexgrog") if not shutil.which(name)]
    if lacking:
        print(f"no {', '.join(lacking)} here")
        return 77
    build = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory(prefix="sluice-package-") as folder:
        package(build, pathlib.Path(folder))
        is_built(build)
        by_hand(build, pathlib.Path(folder))
    print("package: installs, runs, and goes away")
    return 0


if __name__ == "__main__":
    sys.exit(main())
