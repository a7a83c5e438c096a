#!/usr/bin/env python3
"""Runs the commands that the documents show, in a temporary folder, with the program that was built.

    readme_test.py --binary build/ci/sluice README.md docs/reference/formats.md

Fenced blocks take part by what stands behind their language:

    ```click file=edge.click     the block becomes this file
    ```sh run                    the lines are one script; `exit=N` when its last command must end with N
    ```sh run root               the same as root, in network namespaces of this test's own; what was not run is said
    ```console run               after each "$ COMMAND" its output; compared with every number, and the kind of its
                                 unit, left out, so that rates and times may differ. "..." is any number of lines.

--update writes what the commands said into the console blocks, instead of comparing: for when an output has changed on
purpose, or to show the figures of a quiet machine. `build/cpu` in the folder is the build folder of the program, and HOME is the folder itself.
"""
import argparse
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

FENCE = re.compile(r"^```(\w+) (.+)$")
NUMBER = re.compile(r"-?\d[\d,.]*(?:\s?(?:[num]?s|[KMG]iB|B|bytes|[kMG]?pps|[kMG]?bit/s|[kMG])\b)?")
LIMIT_S = 600


def blocks(path):
    """(line, language, words, text) of each fenced block that has words behind its language."""
    lines = path.read_text(encoding="utf-8").split("\n")
    i = 0
    while i < len(lines):
        match = FENCE.match(lines[i])
        opened = lines[i].startswith("```")
        start = i
        i += 1
        if not opened:
            continue
        while i < len(lines) and lines[i] != "```":
            i += 1
        if i == len(lines):
            raise ValueError(f"{path}:{start + 1}: the block has no end")
        if match:
            yield start + 1, match.group(1), match.group(2).split(), "\n".join(lines[start + 1:i]) + "\n"
        i += 1


def sessions(text):
    """(command, expected output) pairs of a console block; a command goes on while its lines end in a backslash."""
    found = []
    lines = text.split("\n")[:-1]
    i = 0
    while i < len(lines):
        if lines[i].startswith("$ "):
            command = lines[i][2:]
            while command.endswith("\\"):
                i += 1
                command += "\n" + lines[i]
            found.append((command, []))
        elif found:
            found[-1][1].append(lines[i])
        else:
            raise ValueError("a console block begins with '$ COMMAND'")
        i += 1
    return found


def shape(line):
    return re.sub(r"[\s-]+", " ", NUMBER.sub("#", line)).strip()


def fits(expected, said):
    """Whether the output has the expected lines; "..." skips any number of lines."""
    expected = [line if line.strip() == "..." else shape(line) for line in expected]
    said = [shape(line) for line in said]
    # reached: the positions in `said` that the expected lines so far may have come to
    reached = {0}
    for line in expected:
        if line.strip() == "...":
            reached = set(range(min(reached), len(said) + 1)) if reached else set()
        else:
            reached = {at + 1 for at in reached if at < len(said) and said[at] == line}
    return len(said) in reached


class Runner:
    def __init__(self, binary, folder):
        self.folder = folder
        (folder / "build").mkdir()
        (folder / "build/cpu").symlink_to(binary.parent)
        self.environment = {**os.environ, "PATH": f"{binary.parent}:{os.environ['PATH']}", "HOME": str(folder),
                            "XDG_RUNTIME_DIR": str(folder), "NO_COLOR": "1"}
        self.sessions = []  # of commands that leave something running
        self.failures = []
        self.updates = {}  # by line of the block's fence: its new text
        self.commands = self.files = 0
        self.network = None  # the process whose namespaces blocks of root run in
        self.not_run = []

    def enter(self):
        """The command that enters namespaces for mounts and networks, where `ip netns` has names of its own; None: not here."""
        if self.network is None:
            self.network = subprocess.Popen(["unshare", "--mount", "--net", "sh", "-c", "mkdir -p /run/netns && mount -t tmpfs tmpfs "
                                             "/run/netns && echo ready && exec sleep infinity"], stdout=subprocess.PIPE,
                                            stderr=subprocess.DEVNULL, text=True, start_new_session=True)
            self.sessions.append(self.network.pid)
            self.ready = self.network.stdout.readline() == "ready\n"
        return ["nsenter", f"--target={self.network.pid}", "--mount", "--net", "--root"] if self.ready else None

    def shell(self, script, prefix=()):
        script = f"cd '{self.folder}'\n{script}"
        command = subprocess.Popen([*prefix, "bash", "-e", "-o", "pipefail", "-c", script], cwd=self.folder, env=self.environment,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   start_new_session=True)
        self.sessions.append(command.pid)
        try:
            said, _ = command.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(command.pid, signal.SIGKILL)
            command.communicate()
            raise
        return subprocess.CompletedProcess(script, command.returncode, said)

    def end(self):
        """Ends what commands left in the background."""
        for session in self.sessions:
            try:
                os.killpg(session, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def run(self, path):
        for line, _, words, text in blocks(path):
            try:
                self.block(path, line, words, text)
            except (ValueError, subprocess.TimeoutExpired) as error:
                self.failures.append(f"{path}:{line}: {error}")

    def block(self, path, line, words, text):
        where = f"{path}:{line}"
        options = dict(word.split("=", 1) for word in words if "=" in word)
        unknown = set(options) - {"file", "exit"} | {word for word in words if "=" not in word} - {"run", "root"}
        if unknown or ("run" in words) == ("file" in options):
            raise ValueError(f"'{' '.join(words)}' is neither 'file=NAME' nor 'run [root] [exit=N]'")
        if "file" in options:
            (self.folder / options["file"]).write_text(text)
            self.files += 1
            return
        prefix = ()
        if "root" in words:
            lacking = [name for name in ("ip", "ping", "iperf3") if name in re.findall(r"\w+", text) and not shutil.which(name)]
            prefix = None if os.geteuid() != 0 or lacking else self.enter()
            if prefix is None:
                self.not_run.append(f"{where}: not run: " + (f"no {', '.join(lacking)} here" if lacking else
                                                             "it needs root, and rights to create network namespaces"))
                return
        steps = sessions(text) if text.startswith("$ ") else [(text, None)]
        said = []
        for command, expected in steps:
            self.commands += 1
            done = self.shell(command, prefix)
            said.append(f"$ {command}\n{done.stdout}")
            code = int(options.get("exit", 0))
            if done.returncode != code:
                self.failures.append(f"{where}: exit code {done.returncode}, not {code}, of: {command}\n{done.stdout}")
            elif expected is not None and not fits(expected, done.stdout.rstrip("\n").split("\n") if done.stdout.strip() else []):
                self.failures.append(f"{where}: another output of: {command}\n--- expected\n" + "\n".join(expected) +
                                     f"\n--- said\n{done.stdout}")
        if text.startswith("$ "):
            self.updates[line] = "".join(said)

    def rewrite(self, path):
        lines = path.read_text(encoding="utf-8").split("\n")
        for start in sorted(self.updates, reverse=True):
            lines[start:lines.index("```", start)] = self.updates[start].rstrip("\n").split("\n")
        path.write_text("\n".join(lines), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, required=True)
    parser.add_argument("--update", action="store_true")
    parser.add_argument("documents", type=pathlib.Path, nargs="+")
    arguments = parser.parse_args()
    failed = False
    for document in arguments.documents:
        with tempfile.TemporaryDirectory(prefix="sluice-readme-") as folder:
            runner = Runner(arguments.binary.resolve(), pathlib.Path(folder))
            try:
                runner.run(document)
            finally:
                runner.end()
        if arguments.update:
            runner.failures = [failure for failure in runner.failures if "another output of" not in failure]
            if not runner.failures:
                runner.rewrite(document)
        if runner.commands == 0:
            runner.failures.append(f"{document}: no block of it is marked to run")
        for line in runner.failures + runner.not_run:
            print(line)
        print(f"{document}: {runner.commands} scripts and commands, {runner.files} files, {len(runner.failures)} failures, "
              f"{len(runner.not_run)} not run")
        failed = failed or bool(runner.failures)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
