#!/usr/bin/env python3
"""Checks that every #include respects the layers: a folder includes lower layers only.

The table below is the law; it is compared with the DEPS in CMakeLists.txt, so that the two cannot drift apart.
Further rules: quoted includes name project files from src/ (or the includer's own folder) and exist; project headers are
never included with angle brackets; CUDA's headers appear below memory/cuda, exec/cuda and the cuda folders of studies/ only;
what is in studies/ is included there, by apps/bench and by tests alone. And in tests: what rc::check returns is looked at,
since GoogleTest does not hear of a property that fails.

  check_layers.py              checks the tree
  check_layers.py --self-test  checks the checker on small made-up trees
"""
import argparse
import pathlib
import re
import sys
import tempfile

# layer -> the layers it may include, besides itself.
_BASE = {"base"}
_BATCH = _BASE | {"net", "memory", "batch"}
ALLOWED = {
    "base": set(),
    "net": _BASE,
    "memory": _BASE,
    "batch": _BASE | {"net", "memory"},
    "tables": _BATCH,
    "qos": _BATCH,
    "flows": _BATCH,
    "formats": _BATCH | {"tables", "qos"},
    "ports": _BATCH,  # ports and tables never see each other
    "graph": _BATCH | {"tables", "qos", "flows", "formats"},
    "generate": _BATCH | {"tables", "qos", "formats", "ports"},
    "elements": _BATCH | {"tables", "qos", "flows", "formats", "graph"},  # never ports, never exec
    "exec": _BATCH | {"tables", "qos", "flows", "formats", "graph", "elements", "ports"},
    "control": _BATCH | {"tables", "qos", "flows", "formats", "graph", "elements", "ports", "exec"},
    "api": _BATCH | {"tables", "qos", "flows", "formats", "graph", "elements", "ports", "exec", "control"},
}
ALL = set(ALLOWED)
# Above the layers: applications, system tests, benchmarks, what only a study needs.
TOPS = {"apps", "tests", "bench", "studies", "python"}
# Who may include what is in studies/: the product never does.
USES_STUDIES = ("studies/", "apps/bench/", "tests/")

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
CUDA_HEADER = re.compile(r"^(cuda(_\w+)?\.h|cuda/.*|cub/.*|thrust/.*|cooperative_groups(/.*|\.h)|nvml\.h|nvrtc\.h|nvtx3/.*|"
                         r"device_launch_parameters\.h|nv/target|cuda\w*\.hpp)$")
CUDA_FOLDERS = re.compile(r"(src/memory|src/exec|studies(/\w+)?)/cuda/")
SUFFIXES = {".h", ".cpp", ".cc", ".cu", ".cuh"}
UNHEARD = re.compile(r"^\s*rc::check\(")


def layer_of(path):
    """The layer of a path relative to the root, a top, or None."""
    parts = path.parts
    if parts[0] == "src" and len(parts) > 2:
        return parts[1]
    return parts[0] if parts[0] in TOPS else None


def check_file(root, path, report):
    relative = path.relative_to(root)
    layer = layer_of(relative)
    if layer not in ALLOWED and layer not in TOPS:
        report(f"{relative}:1: '{layer or relative}' is no known layer; add it to scripts/check_layers.py and CMakeLists.txt")
        return
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        if UNHEARD.match(line):
            report(f"{relative}:{number}: a property that fails would pass: write EXPECT_TRUE(rc::check(...))")
        match = INCLUDE.match(line)
        if not match:
            continue
        quote, name = match.groups()
        where = f"{relative}:{number}"
        if CUDA_HEADER.match(name):
            if not CUDA_FOLDERS.match(str(relative)):
                report(f"{where}: {name}: CUDA headers belong below src/memory/cuda, src/exec/cuda and studies' cuda folders only")
            continue
        if quote == "<":
            if (root / "src" / name).is_file():
                report(f'{where}: <{name}> is a file of this project; write "{name}"')
            continue
        target = next((p for p in (root / "src" / name, path.parent / name, root / name) if p.is_file()), None)
        if target is None:
            report(f'{where}: "{name}" is not a file of this project; write <{name}> for a library\'s header')
            continue
        try:
            target_layer = layer_of(target.resolve().relative_to(root.resolve()))
        except ValueError:
            report(f'{where}: "{name}" leaves the project')
            continue
        if target_layer == "studies" and not str(relative).startswith(USES_STUDIES):
            report(f"{where}: {name}: only {', '.join(USES_STUDIES)} include what is in studies/")
            continue
        if layer in TOPS or target_layer == layer:
            continue
        if target_layer not in ALLOWED[layer]:
            may = ", ".join(sorted(ALLOWED[layer])) or "nothing"
            report(f"{where}: {layer} may not include {target_layer} ({name}); {layer} may include: {may}")


def check_cmake(root, report):
    """The DEPS of sluice_layer(), closed transitively, must be the table above."""
    text = (root / "CMakeLists.txt").read_text()
    deps = {}
    for name, rest in re.findall(r"^sluice_layer\(\s*(\w+)((?:\s+DEPS(?:\s+\w+)+)?)\s*\)", text, re.M):
        deps[name] = set(rest.split()[1:])
    if not deps:
        report("CMakeLists.txt: no sluice_layer() lines found")

    def closure(name):
        seen = set()
        todo = list(deps.get(name, ()))
        while todo:
            one = todo.pop()
            if one not in seen:
                seen.add(one)
                todo += deps.get(one, ())
        return seen

    for name in sorted(ALL | set(deps)):
        if name not in deps:
            report(f"CMakeLists.txt: no sluice_layer({name}), but scripts/check_layers.py knows it")
        elif name not in ALLOWED:
            report(f"CMakeLists.txt: sluice_layer({name}) is unknown to scripts/check_layers.py")
        elif closure(name) != ALLOWED[name]:
            report(f"CMakeLists.txt: sluice_layer({name}) reaches {sorted(closure(name))}, "
                   f"scripts/check_layers.py allows {sorted(ALLOWED[name])}")


def check_tree(root):
    problems = []
    files = 0
    for top in ("src", "apps", "tests", "bench", "studies", "python/src"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix in SUFFIXES and path.is_file():
                files += 1
                check_file(root, path, problems.append)
    return files, problems


def self_test():
    """Each case: files, and the words that the one problem must contain (None: no problem)."""
    cases = [
        ({"src/base/a.h": "", "src/net/b.h": '#include "base/a.h"\n#include <vector>'}, None),
        ({"src/net/b.h": "", "src/base/a.h": '#include "net/b.h"'}, "base may not include net"),
        ({"src/net/b.h": "", "src/memory/a.h": '#include "net/b.h"'}, "memory may not include net"),
        ({"src/tables/b.h": "", "src/ports/a.cpp": '#include "tables/b.h"'}, "ports may not include tables"),
        ({"src/ports/b.h": "", "src/tables/x/a.h": '#include "ports/b.h"'}, "tables may not include ports"),
        ({"src/tables/b.h": "", "src/formats/a.h": '#include "tables/b.h"'}, None),
        ({"src/exec/b.h": "", "src/elements/x/a.h": '  #  include "exec/b.h"'}, "elements may not include exec"),
        ({"src/ports/b.h": "", "src/elements/x/a.h": '#include "ports/b.h"'}, "elements may not include ports"),
        ({"src/exec/b.h": "", "src/graph/a.h": '#include "exec/b.h"'}, "graph may not include exec"),
        ({"src/ports/p/b.h": "", "src/generate/a.h": '#include "ports/p/b.h"'}, None),
        ({"src/exec/b.h": "", "apps/sluice/a.cpp": '#include "exec/b.h"'}, None),
        ({"studies/a/b.h": "", "apps/bench/a.cpp": '#include "studies/a/b.h"'}, None),
        ({"studies/a/b.h": "", "apps/sluice/a.cpp": '#include "studies/a/b.h"'}, "include what is in studies/"),
        ({"studies/a/b.h": "", "src/exec/a.cpp": '#include "studies/a/b.h"'}, "include what is in studies/"),
        ({"src/exec/b.h": "", "studies/a/a.cpp": '#include "exec/b.h"'}, None),
        ({"studies/a/cuda/a.cu": "#include <cuda_runtime.h>"}, None),
        ({"src/base/b.h": "", "src/base/a.h": '#include "b.h"'}, None),
        ({"src/net/b.h": "", "src/base/a.h": '#include "../net/b.h"'}, "base may not include net"),
        ({"src/base/b.h": "", "src/net/a.h": "#include <base/b.h>"}, "is a file of this project"),
        ({"src/net/a.h": '#include "missing.h"'}, "not a file of this project"),
        ({"src/net/a.h": "#include <cuda_runtime.h>"}, "CUDA headers belong"),
        ({"src/exec/cpu/a.h": "#include <cub/cub.cuh>"}, "CUDA headers belong"),
        ({"src/exec/device/a.h": "#include <nvtx3/nvToolsExt.h>"}, "CUDA headers belong"),
        ({"src/exec/cuda/a.cu": "#include <cuda_runtime.h>"}, None),
        ({"src/memory/cuda/a.cpp": "#include <cuda.h>"}, None),
        ({"src/stuff/a.h": ""}, "no known layer"),
        ({"src/base/a_test.cpp": "  rc::check([] {});"}, "would pass"),
        ({"src/base/a_test.cpp": "  EXPECT_TRUE(rc::check([] {}));"}, None),
    ]
    failed = 0
    for files, expected in cases:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            _, problems = check_tree(root)
        good = not problems if expected is None else len(problems) == 1 and expected in problems[0]
        if not good:
            failed += 1
            print(f"self-test: {files}: expected {expected!r}, got {problems}", file=sys.stderr)
    print(f"check_layers self-test: {len(cases) - failed} passed, {failed} failed")
    return failed == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        return 0 if self_test() else 1
    root = pathlib.Path(__file__).resolve().parent.parent
    files, problems = check_tree(root)
    check_cmake(root, problems.append)
    if files == 0:
        problems.append("no source files found")
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"layers: {files} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
