"""A VPP process with the plug-in, of which a test or a benchmark sees commands, the binary API and captures.

Everything it needs lies in one temporary folder; it takes no huge pages and no device, and needs no privileges. Where it
is found: VPP_SOURCE and VPP_BUILD name a source tree and its build folder, SLUICE_VPP_PLUGIN the plug-in's build folder."""
import ctypes
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

WAIT_S = 60  # for whatever has to happen; a test that passes needs a fraction of it


class Missing(Exception):
    """What a machine lacks, as a sentence."""


def find():
    """(VPP source, VPP build, plug-in build) as paths. Raises Missing."""
    found = []
    for name, inside, what in (("VPP_SOURCE", "src/vlib/vlib.h", "a VPP source tree"),
                               ("VPP_BUILD", "bin/vpp", "a build folder of VPP"),
                               ("SLUICE_VPP_PLUGIN", "vpp_plugins/sluice_plugin.so", "a build folder of the plug-in")):
        value = os.environ.get(name)
        if not value:
            raise Missing(f"{name} is not set: it names {what}")
        path = pathlib.Path(value).resolve()
        if not (path / inside).exists():
            raise Missing(f"{name}={value} is not {what}: it has no {inside}")
        found.append(path)
    return found


def free_processors():
    return sorted(os.sched_getaffinity(0))


def die_with_parent():
    """In a child before it executes: a parent that is killed leaves no VPP behind, which would poll for ever."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Vpp:
    """Starts on enter, ends on exit. `workers`: threads that forward; None: the main thread does."""

    diagnostics = sys.stderr  # what a VPP said that has ended, or was used when something failed

    def __init__(self, workers=None, extra="", heap="1G", plugins=("sluice",)):
        self.source, self.build, self.plugin = find()
        self.workers, self.extra, self.heap, self.plugins = workers, extra, heap, plugins
        self.process = None
        self.papi = None

    def __enter__(self):
        library = next((p for p in (self.build / "lib").rglob("vpp_plugins") if p.is_dir()), self.build / "lib/vpp_plugins")
        cpu = ""
        if self.workers is not None:
            cores = free_processors()
            if len(cores) < self.workers + 1:
                raise Missing(f"{self.workers} workers and the main thread need {self.workers + 1} processors")
            cpu = f"main-core {cores[0]} corelist-workers {','.join(map(str, cores[1:self.workers + 1]))}"
        # Unix sockets have short names.
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="vpp", dir=tempfile.gettempdir() if len(tempfile.gettempdir()) < 60 else "/tmp"))
        wanted = " ".join(f"plugin {p}_plugin.so {{ enable }}" for p in self.plugins)
        (self.folder / "startup.conf").write_text(f"""
unix {{ nodaemon cli-listen {self.folder}/cli.sock log {self.folder}/vpp.log runtime-dir {self.folder} coredump-size 0 }}
api-segment {{ prefix {self.folder.name} }}
socksvr {{ socket-name {self.folder}/api.sock }}
statseg {{ socket-name {self.folder}/stats.sock size 64M page-size 4K }}
memory {{ main-heap-size {self.heap} main-heap-page-size 4K default-hugepage-size 4K }}
buffers {{ buffers-per-numa 32768 page-size 4K }}
physmem {{ max-size 512M }}
cpu {{ {cpu} }}
plugins {{ path {library}:{self.plugin}/vpp_plugins:{self.plugin}/test_plugins plugin default {{ disable }} {wanted} }}
{self.extra}
""")
        self.output = open(self.folder / "output", "w")
        self.process = subprocess.Popen([self.build / "bin/vpp", "-c", self.folder / "startup.conf"],
                                        stdin=subprocess.DEVNULL, stdout=self.output, stderr=subprocess.STDOUT,
                                        preexec_fn=die_with_parent)
        try:
            self.wait(lambda: (self.folder / "cli.sock").exists() and self.answers(), "VPP answers")
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(self, *error):
        if self.papi is not None:
            self.papi.disconnect()
        died = self.process.poll()
        if died is None:
            # Who interrupts does not wait for its orderly end.
            at_once = error[0] is not None and not issubclass(error[0], Exception)
            self.process.send_signal(signal.SIGKILL if at_once else signal.SIGTERM)
            try:
                self.process.wait(WAIT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.output.close()
        text = (self.folder / "output").read_text(errors="replace")
        shutil.rmtree(self.folder, ignore_errors=True)
        if died is not None and error[0] is None:
            raise AssertionError(f"VPP has ended with {died}:\n{text[-3000:]}")
        if died is not None or error[0] is not None:
            self.diagnostics.write(text[-3000:])

    def answers(self):
        try:
            return "vpp v" in self.cli("show version")
        except subprocess.TimeoutExpired:
            return False

    def wait(self, condition, what):
        end = time.monotonic() + WAIT_S
        while not condition():
            if self.process.poll() is not None:
                raise AssertionError(f"VPP has ended with {self.process.returncode}:\n"
                                     + (self.folder / "output").read_text(errors="replace")[-3000:])
            if time.monotonic() > end:
                raise AssertionError(f"not within {WAIT_S} s: {what}")
            time.sleep(0.01)

    def cli(self, command, within=WAIT_S):
        """The output of one command by vppctl. Raises subprocess.TimeoutExpired after `within` seconds."""
        done = subprocess.run([self.build / "bin/vppctl", "-s", self.folder / "cli.sock", command],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=within)
        return done.stdout.decode(errors="replace").replace("\r", "").replace("\0", "").strip("\n")

    def do(self, *commands):
        """Commands that say nothing where all went well."""
        for command in commands:
            answer = self.cli(command)
            if answer:
                raise AssertionError(f"'{command}': {answer}")

    def api(self):
        """vpp_papi, connected."""
        if self.papi is None:
            sys.path.insert(0, str(self.source / "src/vpp-api/python"))
            from vpp_papi import VPPApiClient
            files = [str(p) for p in (self.build / "CMakeFiles").rglob("*.api.json")]
            files.append(str(self.plugin / "sluice.api.json"))
            self.papi = VPPApiClient(apifiles=files, server_address=str(self.folder / "api.sock"))
            self.papi.connect("sluice-test")
        return self.papi.api

    def statistics(self, name):
        """One entry of VPP's segment of statistics, as vpp_papi has it."""
        sys.path.insert(0, str(self.source / "src/vpp-api/python"))
        from vpp_papi.vpp_stats import VPPStats
        segment = VPPStats(socketname=str(self.folder / "stats.sock"))
        segment.connect()
        try:
            return segment[name]
        finally:
            segment.disconnect()

    def runtime(self, node):
        """(calls, vectors, clocks per packet) of a node by `show runtime`, of the thread that ran it most."""
        best = (0, 0, 0.0)
        for line in self.cli("show runtime").splitlines():
            words = line.split()
            if words and words[0] == node:
                calls, vectors, clocks = float(words[-5]), float(words[-4]), float(words[-2])
                best = max(best, (vectors, calls, clocks))
        return best[1], best[0], best[2]

    def errors(self, node):
        """{text: count} of a node by `show errors`."""
        counts = {}
        for line in self.cli("show errors").splitlines():
            words = line.split()
            if len(words) > 3 and words[0].isdigit() and words[1] == node:
                text = " ".join(words[2:-1])
                counts[text] = counts.get(text, 0) + int(words[0])
        return counts
