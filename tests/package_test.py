#!/usr/bin/env python3
"""What is installed, and that it goes away again.

    package_test.py BUILD

The Debian package of the build is made, put into an empty root by dpkg and purged; `cmake --install` and the target
`uninstall` do the same under a prefix. Both bring what a package of such a program has and nothing else, the program is
stripped and runs, another program's `click` stays, and afterwards nothing is left. Exit code 77: no dpkg here.
"""
import pathlib
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


def look_at_program(program):
    if not run(program, "--version").startswith("sluice "):
        sys.exit(f"{program} does not run")
    if ".symtab" in run("readelf", "-S", "-W", program):
        sys.exit(f"{program} is not stripped")


def package(build, folder):
    run("cpack", "-G", "DEB", "-B", folder / "made", "--config", build / "CPackConfig.cmake")
    (deb,) = (folder / "made").glob("*.deb")
    root = folder / "root"
    for name in ("updates", "info", "parts"):
        (root / "var/lib/dpkg" / name).mkdir(parents=True)
    (root / "var/lib/dpkg/status").touch()
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/click").write_text("another's\n")
    dpkg = ["dpkg", f"--root={root}", f"--log={folder}/log", "--force-not-root", "--force-depends", "--force-script-chrootless"]
    run(*dpkg, "-i", deb)
    want = {name.format(zsh="vendor-completions") for name in FILES} | {"bin/click"}
    expect(deb.name, files(root / "usr"), want)
    look_at_program(root / "usr/bin/sluice")
    run("lexgrog", root / "usr/share/man/man1/sluice.1.gz")
    run(*dpkg, "--purge", "sluice")
    expect("after purging", files(root / "usr"), {"bin/click"})


def by_hand(build, folder):
    prefix = folder / "prefix"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin/click").write_text("another's\n")
    manifest = build / "install_manifest.txt"
    kept = manifest.read_bytes() if manifest.exists() else None
    try:
        run("cmake", "--install", build, "--prefix", prefix)
        expect("cmake --install", files(prefix), {name.format(zsh="site-functions") for name in FILES} | {"bin/click"})
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
        by_hand(build, pathlib.Path(folder))
    print("package: installs, runs, and goes away")
    return 0


if __name__ == "__main__":
    sys.exit(main())
