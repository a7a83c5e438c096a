#!/usr/bin/env python3
"""Compiles every host source alone, as the presets that users build do: no precompiled headers, no files joined.

The presets `cpu` and, where there is nvcc, `cuda` are configured in build/sources/ without being built; of what they would
compile, every C++ file is parsed and checked (-fsyntax-only): program, tests and benchmarks. A file that means the same in
both is checked once. CUDA's own files (*.cu) are never joined, so that the build of preset `ci` compiles each alone already.

Results are kept by content (the file, all project headers that it reaches, compiler, flags) in build/sources/ok, so that a
second run checks only what changed.
"""
import argparse
import concurrent.futures
import hashlib
import json
import pathlib
import re
import shlex
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)
# What makes a file another one where there is CUDA.
CUDA = re.compile(r"SLUICE_WITH_CUDA|#\s*include\s*<(cuda|nvml|nvtx3|cub|thrust|cooperative_groups)")


class Files:
    """Texts of project files and the project files that they include, each read once."""

    def __init__(self, root):
        self.root = root
        self.known = {}

    def look(self, path):
        if path not in self.known:
            text = path.read_text(encoding="utf-8", errors="replace")
            found = []
            for name in INCLUDE.findall(text):
                places = (self.root / "src" / name, path.parent / name, self.root / name)
                target = next((p for p in places if p.is_file()), None)
                if target:
                    found.append(target.resolve())
            self.known[path] = (hashlib.sha256(text.encode()).hexdigest(), found, bool(CUDA.search(text)))
        return self.known[path]

    def closure(self, path):
        """The file and every project file that it reaches, sorted."""
        seen = set()
        todo = [path]
        while todo:
            one = todo.pop()
            if one not in seen:
                seen.add(one)
                todo += self.look(one)[1]
        return sorted(seen)


def syntax_command(command):
    """The words of a compile command with -fsyntax-only in place of its output."""
    out = []
    skip = False
    for word in shlex.split(command):
        if skip:
            skip = False
        elif word == "-o":
            skip = True
        elif word != "-c":
            out.append(word)
    return out + ["-fsyntax-only"]


def meaning(words, cuda):
    """What of the command counts: without CUDA in the file, its definition and its headers' place do not."""
    kept = []
    skip = False
    for i, word in enumerate(words):
        if skip:
            skip = False
        elif not cuda and word == "-DSLUICE_WITH_CUDA=1":
            continue
        elif not cuda and word == "-isystem" and "cuda" in words[i + 1].lower():
            skip = True
        else:
            kept.append(word)
    return kept


class Check:
    def __init__(self, files, folder, preset, entry, version):
        path = pathlib.Path(entry["file"]).resolve()
        self.preset = preset
        self.name = str(path.relative_to(files.root))
        self.folder = entry["directory"]
        self.words = syntax_command(entry["command"])
        reached = files.closure(path)
        cuda = any(files.look(one)[2] for one in reached)
        digest = hashlib.sha256(f"{version}\0".encode())
        digest.update("\0".join(word.replace(self.folder, "").replace(str(files.root), "") for word in meaning(self.words, cuda)).encode())
        for one in reached:
            digest.update(f"\0{one.relative_to(files.root)}\0{files.look(one)[0]}".encode())
        self.stamp = folder / "ok" / digest.hexdigest()[:32]

    def run(self):
        """None when fine, else what the compiler said."""
        done = subprocess.run(self.words, cwd=self.folder, capture_output=True, text=True)
        if done.returncode == 0:
            self.stamp.touch()
            return None
        return " ".join(map(shlex.quote, self.words)) + "\n" + done.stdout + done.stderr


def entries(build, root):
    """What the preset in `build` compiles as C++ that is a file of the tree."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = pathlib.Path(entry["file"])
        if path.suffix in (".cpp", ".cc") and root in path.parents and root / "build" not in path.parents:
            yield entry


def configure(preset, build):
    done = subprocess.run(["cmake", "--preset", preset, "-B", str(build)], cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"cmake --preset {preset} failed:\n{done.stdout}{done.stderr}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nvcc", help="path of nvcc; without it preset cpu alone is looked at")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--list", action="store_true", help="print what would be checked, and stop")
    arguments = parser.parse_args()
    start = time.monotonic()
    folder = ROOT / "build/sources"
    (folder / "ok").mkdir(parents=True, exist_ok=True)
    presets = ["cpu"] + (["cuda"] if arguments.nvcc else [])
    if not arguments.nvcc:
        print("no nvcc here: preset cpu alone")
    files = Files(ROOT)
    checks = {}
    versions = {}
    total = 0
    for preset in presets:
        try:
            configure(preset, folder / preset)
        except RuntimeError as error:
            print(error, file=sys.stderr)
            return 1
        for entry in entries(folder / preset, ROOT):
            compiler = next(word for word in syntax_command(entry["command"]) if not word.endswith("ccache"))
            if compiler not in versions:
                versions[compiler] = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
            check = Check(files, folder, preset, entry, versions[compiler])
            total += 1
            checks.setdefault(check.stamp, check)
    if not checks:
        print("check_sources: no sources found", file=sys.stderr)
        return 1
    todo = [check for check in checks.values() if not check.stamp.exists()]
    if arguments.list:
        for check in todo:
            print(f"{check.preset:5} {check.name}")
        return 0
    # The large ones first, so that the last worker does not end alone.
    todo.sort(key=lambda check: -(ROOT / check.name).stat().st_size)
    problems = 0
    with concurrent.futures.ThreadPoolExecutor(max(1, arguments.jobs)) as pool:
        for check, said in zip(todo, pool.map(Check.run, todo)):
            if said is not None:
                problems += 1
                print(f"{check.name} does not compile alone in preset {check.preset}:\n{said}", file=sys.stderr, flush=True)
    print(f"sources: {total} in {' and '.join(presets)}, {len(checks)} differ, {len(checks) - len(todo)} unchanged, "
          f"{problems} problems, {time.monotonic() - start:.1f} s")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
