#!/usr/bin/env python3
"""clang-tidy with the rules of .clang-tidy; every finding is an error.

By default over the files that differ from the main branch or are not committed; --all takes every file of the build.
A file that passed is not asked again until it, a project header it reaches, its command or the rules change.
"""
import argparse
import concurrent.futures
import hashlib
import json
import pathlib
import shutil
import subprocess
import sys
import time

import check_headers

ROOT = pathlib.Path(__file__).resolve().parent.parent


def git(*arguments):
    result = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return result.stdout.split("\n") if result.returncode == 0 else []


def changed_files():
    names = set(git("diff", "--name-only", "HEAD")) | set(git("ls-files", "-o", "--exclude-standard"))
    for base in ("origin/main", "main"):
        fork = git("merge-base", base, "HEAD")
        if fork and fork[0]:
            names |= set(git("diff", "--name-only", fork[0], "HEAD"))
            break
    return {(ROOT / name).resolve() for name in names if name}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/ci")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--no-tests", action="store_true", help="leave *_test.cpp out: half of the time for what runs anyway")
    arguments = parser.parse_args()
    tool = shutil.which("clang-tidy-14") or shutil.which("clang-tidy")
    if not tool:
        print("clang-tidy is missing; run ./dev setup", file=sys.stderr)
        return 1
    start = time.monotonic()
    build = ROOT / arguments.build
    stamps = ROOT / "build/tidy"
    stamps.mkdir(parents=True, exist_ok=True)
    rules = (ROOT / ".clang-tidy").read_bytes() + check_headers.version_of(tool).encode()
    entries = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = pathlib.Path(entry["file"]).resolve()
        if path.suffix == ".cpp" and not (arguments.no_tests and path.name.endswith("_test.cpp")):
            entries[path] = entry["command"]
    if not entries:
        print("clang-tidy: no files to look at", file=sys.stderr)
        return 1
    changed = None if arguments.all else changed_files()
    todo = []
    for path in sorted(entries):
        reach = check_headers.closure(path)
        if changed is not None and not changed.intersection(reach):
            continue
        digest = hashlib.sha256(rules + entries[path].encode())
        for one in reach:
            digest.update(one.read_bytes())
        stamp = stamps / digest.hexdigest()[:32]
        if not stamp.exists():
            todo.append((path, stamp))

    def run(item):
        path, stamp = item
        result = subprocess.run([tool, "-p", str(build), "--quiet", str(path)], capture_output=True, text=True,
                                errors="replace")
        if result.returncode == 0:
            stamp.touch()
            return None
        return result.stdout + "".join(line + "\n" for line in result.stderr.splitlines()
                                       if "warnings generated" not in line and "Suppressed" not in line
                                       and "header-filter" not in line)

    failed = 0
    with concurrent.futures.ThreadPoolExecutor(max(1, arguments.jobs)) as pool:
        for (path, _), said in zip(todo, pool.map(run, todo)):
            if said is not None:
                failed += 1
                print(f"{path.relative_to(ROOT)}:\n{said}", file=sys.stderr)
    print(f"clang-tidy: {len(todo)} of {len(entries)} files asked, {failed} with findings, "
          f"{time.monotonic() - start:.1f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
