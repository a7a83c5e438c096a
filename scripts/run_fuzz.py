#!/usr/bin/env python3
"""Runs every fuzz target of a build: first its whole seed corpus, then a bounded number of new inputs.

Seeds are tests/corpus/<target>/; a target without seeds is a failure. New inputs go to build/, never to the seeds. What
makes a target fail is kept in <build>/fuzz-findings/ with the command that replays it.
"""
import argparse
import concurrent.futures
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Where the words of a target's inputs stand, in backticks.
WORDS = {"control_fuzz": ROOT / "docs/reference/requests.md"}


def run_target(build, target, runs, seconds):
    """(seconds, None) when fine, else (seconds, what it said)."""
    start = time.monotonic()
    program = build / target
    seeds = ROOT / "tests/corpus" / target
    if not program.is_file():
        return 0, f"{program} was not built"
    if not seeds.is_dir() or not any(seeds.iterdir()):
        return 0, f"tests/corpus/{target}/ is missing or empty: add seed inputs"
    fresh = build / "fuzz-corpus" / target
    findings = build / "fuzz-findings"
    fresh.mkdir(parents=True, exist_ok=True)
    findings.mkdir(parents=True, exist_ok=True)
    limits = ["-timeout=60", "-rss_limit_mb=2048", "-malloc_limit_mb=1024", f"-artifact_prefix={findings}/{target}-"]
    if target in WORDS:
        dictionary = fresh.with_suffix(".dict")
        words = sorted(set(re.findall(r"`([a-z_ ]+)`", WORDS[target].read_text(encoding="utf-8"))))
        dictionary.write_text("".join(f'"\\"{word}\\""\n' for word in words))
        limits.append(f"-dict={dictionary}")
    said = ""
    for what in (["-runs=0", str(seeds)],
                 [f"-runs={runs}", f"-max_total_time={seconds}", "-max_len=4096", "-print_final_stats=1", "-seed=1",
                  str(fresh), str(seeds)]):
        command = [str(program), *limits, *what]
        try:
            result = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=seconds * 4 + 120,
                                    stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            return time.monotonic() - start, " ".join(command) + "\ndid not end"
        said = result.stdout + result.stderr
        if result.returncode != 0:
            return time.monotonic() - start, " ".join(command) + "\n" + said[-6000:]
    return time.monotonic() - start, None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/asan")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--runs", type=int, default=20000)
    parser.add_argument("--seconds", type=int, default=10, help="at most this long for new inputs, per target")
    parser.add_argument("targets", nargs="*", help="default: all")
    arguments = parser.parse_args()
    build = (ROOT / arguments.build).resolve()
    targets = arguments.targets or (build / "fuzzers.txt").read_text().split()
    stale = [path.name for path in (ROOT / "tests/corpus").glob("*") if path.is_dir()
             and path.name not in targets] if not arguments.targets else []
    failed = 0
    for name in stale:
        failed += 1
        print(f"tests/corpus/{name}/ belongs to no fuzz target", file=sys.stderr)
    with concurrent.futures.ThreadPoolExecutor(max(1, arguments.jobs)) as pool:
        outcomes = pool.map(lambda target: run_target(build, target, arguments.runs, arguments.seconds), targets)
        for target, (seconds, said) in zip(targets, outcomes):
            print(f"{'ok    ' if said is None else 'FAILED'} {target} ({seconds:.1f} s)", flush=True)
            if said is not None:
                failed += 1
                print(said, file=sys.stderr)
    print(f"fuzz: {len(targets)} targets, {failed} problems")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
