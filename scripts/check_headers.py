#!/usr/bin/env python3
"""Compiles every header alone: with g++, and where nvcc is given also as CUDA code (all of it parsed, the device part compiled).

A header is for the device too when it lies in a shared folder (SHARED below), when it is a stage.h or when it says
SLUICE_HD, unless its first comment has a line `host only`. A header that says SLUICE_HD and `host only` is an error.
Each header is included twice, so a missing include guard shows as well. One file has headers of which each includes the one before,
by others or by itself, so that none finds there what it would not have alone; where it does not compile, each half of it is
tried. nvcc is asked for many headers at once: what a header lacks g++ has seen, and nvcc reads slowly.

Results are kept by content (the header, all project headers it reaches, compiler, flags) in build/headers/, so that a
second run compiles only what changed.
"""
import argparse
import concurrent.futures
import hashlib
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHARED = ("net", "batch", "tables")
CXX_FLAGS = ["-std=c++20", "-fsyntax-only", "--param", "ggc-min-heapsize=1048576", "-x", "c++", "-march=x86-64-v2", "-Wall", "-Wextra", "-Wshadow",
             "-Wnon-virtual-dtor", "-Wno-missing-field-initializers", "-Werror"]
NVCC_FLAGS = ["-std=c++20", "-x", "cu", "--expt-relaxed-constexpr", "-arch=sm_90", "-Werror", "all-warnings",
              "-Xcompiler", "-march=x86-64-v2", "-cubin", "-o", "/dev/null"]
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)


def first_comment(text):
    lines = []
    for line in text.splitlines():
        if not line.startswith("//"):
            break
        lines.append(line[2:].strip())
    return lines


def is_host_only(text):
    return any(line.lower().rstrip(".").startswith("host only") for line in first_comment(text))


def is_shared(path, text):
    layer = path.relative_to(ROOT / "src").parts[0]
    return "SLUICE_HD" in text or path.name == "stage.h" or layer in SHARED


def closure(path, cache={}):
    """The header and every project header it reaches."""
    seen = set()
    todo = [path]
    while todo:
        one = todo.pop()
        if one in seen:
            continue
        seen.add(one)
        if one not in cache:
            found = []
            for name in INCLUDE.findall(one.read_text(encoding="utf-8", errors="replace")):
                target = next((p for p in (ROOT / "src" / name, ROOT / "include" / name, one.parent / name) if p.is_file()), None)
                if target:
                    found.append(target.resolve())
            cache[one] = found
        todo += cache[one]
    return seen


def version_of(compiler):
    """Of what compiler it is: what it says of itself but for its name, since c++ is g++."""
    said = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
    return said.partition(" ")[2]


class Check:
    def __init__(self, kind, compiler, flags, version, path):
        self.kind = kind
        self.path = path
        self.name = str(path.relative_to(ROOT / "src"))
        self.includes = frozenset(closure(path))  # itself among them
        self.source = ROOT / "build/headers" / (self.name.replace("/", "__") + (".cu" if kind == "nvcc" else ".cpp"))
        self.command = [compiler, *flags, "-I", str(ROOT / "src"), "-I", str(ROOT / "include"), str(self.source)]
        digest = hashlib.sha256(f"{version}\0{flags}\0".encode())
        for one in sorted(self.includes):
            digest.update(str(one.relative_to(ROOT)).encode() + b"\0" + one.read_bytes() + b"\0")
        self.stamp = ROOT / "build/headers/ok" / f"{kind}-{digest.hexdigest()[:32]}"

    def run(self):
        """None when fine, else what the compiler said."""
        self.source.write_text(f'#include "{self.name}"\n#include "{self.name}"\n')
        result = subprocess.run(self.command, capture_output=True, text=True)
        if result.returncode == 0:
            self.stamp.touch()
            return None
        return " ".join(self.command) + "\n" + result.stdout + result.stderr


class GroupCheck:
    """Several checks of one compiler as one run of it; all that it can say is that they are fine together."""

    def __init__(self, checks):
        self.checks = checks

    def run(self):
        """[(check, what the compiler said or None)]"""
        first = self.checks[0]
        if len(self.checks) == 1:
            return [(first, first.run())]
        source = first.source.with_name("group__" + first.source.name)
        source.write_text("".join(f'#include "{check.name}"\n' for check in self.checks for _ in range(2)))
        command = [str(source) if word == str(first.source) else word for word in first.command]
        if subprocess.run(command, capture_output=True, text=True).returncode == 0:
            for check in self.checks:
                check.stamp.touch()
            return [(check, None) for check in self.checks]
        half = len(self.checks) // 2
        return GroupCheck(self.checks[:half]).run() + GroupCheck(self.checks[half:]).run()


def chains(checks):
    """Lists of headers that make up `checks`, as few as there can be, in which each header is included by the next: a
    minimum cover of the include graph by paths, from a maximum matching of each header to the next one."""
    by_path = {check.path: check for check in checks}
    # Headers that include one another are of the same size, and neither is before the other.
    before = {check.path: [path for path in check.includes if path in by_path and len(by_path[path].includes) < len(check.includes)]
              for check in checks}
    behind = {}  # header -> the one that follows it

    def find_place(path, tried):
        for one in before[path]:
            if one in tried:
                continue
            tried.add(one)
            if one not in behind or find_place(behind[one], tried):
                behind[one] = path
                return True
        return False

    firsts = {check.path for check in checks}
    for check in checks:
        find_place(check.path, set())
    firsts -= set(behind.values())
    result = []
    for path in sorted(firsts):
        result.append([by_path[path]])
        while path in behind:
            path = behind[path]
            result[-1].append(by_path[path])
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cxx", default="g++")
    parser.add_argument("--nvcc", help="path of nvcc; without it only the host compiler is asked")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--list", action="store_true", help="print which headers go to which compiler, and stop")
    arguments = parser.parse_args()
    start = time.monotonic()
    (ROOT / "build/headers/ok").mkdir(parents=True, exist_ok=True)

    problems = []
    checks = []
    cxx_version = version_of(arguments.cxx)
    nvcc_version = version_of(arguments.nvcc) if arguments.nvcc else ""
    headers = sorted((ROOT / "src").rglob("*.h"))
    for path in headers:
        text = path.read_text(encoding="utf-8", errors="replace")
        if "/cuda/" not in str(path.relative_to(ROOT)):
            checks.append(Check("g++", arguments.cxx, CXX_FLAGS, cxx_version, path))
        elif not arguments.nvcc:
            continue
        host_only = is_host_only(text)
        if host_only and "SLUICE_HD" in text:
            problems.append(f"{path.relative_to(ROOT)}:1: says SLUICE_HD and `host only`; split it or drop one")
        elif host_only and path.name.endswith("_test_support.h"):  # for tests, which g++ compiles
            continue
        elif arguments.nvcc and ("/cuda/" in str(path) or (is_shared(path, text) and not host_only)):
            checks.append(Check("nvcc", arguments.nvcc, NVCC_FLAGS, nvcc_version, path))
    if arguments.nvcc:
        for path in sorted((ROOT / "src").rglob("*.cuh")):
            checks.append(Check("nvcc", arguments.nvcc, NVCC_FLAGS, nvcc_version, path))
    else:
        print("no nvcc here: CPU product only")
    if arguments.list:
        for check in checks:
            print(f"{check.kind:5} {check.name}")
        return 0
    if not headers:
        problems.append("no headers found below src/")

    for problem in problems:
        print(problem, file=sys.stderr)

    todo = [check for check in checks if not check.stamp.exists()]
    # The slow ones first, so that the last worker does not end alone.
    device = [check for check in todo if check.kind == "nvcc"]
    jobs = max(1, arguments.jobs)
    size = max(1, -(-len(device) // jobs))
    groups = [GroupCheck(device[i:i + size]) for i in range(0, len(device), size)]
    groups += [GroupCheck(some) for some in chains([check for check in todo if check.kind != "nvcc"])]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for results in pool.map(GroupCheck.run, groups):
            for check, said in results:
                if said is not None:
                    problems.append(f"src/{check.name} does not compile alone with {check.kind}:\n{said}")
                    print(problems[-1], file=sys.stderr, flush=True)
    kinds = ", ".join(f"{sum(c.kind == kind for c in checks)} with {kind}" for kind in ("g++", "nvcc"))
    print(f"headers: {kinds}; {len(checks) - len(todo)} known, {len(problems)} problems, "
          f"{time.monotonic() - start:.1f} s")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
