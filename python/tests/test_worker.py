"""One program for many runs: each run is that of the program alone, and ends, fails and dies by itself."""
import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

import sluice
import sluice.ray
from conftest import ipv4_frame, pcap
from sluice._program import Died, Worker, program

LIMIT = 60  # seconds, for what is to happen


@pytest.fixture
def worker():
    made = Worker()
    yield made
    made.close()


def eventually(what, true):
    end = time.monotonic() + LIMIT
    while not true():
        assert time.monotonic() < end, f"not within {LIMIT} s: {what}"
        time.sleep(0.01)


def of_run(rules, capture, out):
    return ["run", "--acl", str(rules), "--in", str(capture), "--out", str(out)]


def children(pid):
    """The processes that a process of one thread started."""
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(word) for word in file.read().split()]


class Waiting:
    """A run by a worker, in a thread, that waits for a capture's packets."""

    def __init__(self, worker, rules, folder):
        read, self.write = os.pipe()
        self.input = os.fdopen(read, "rb")
        self.error = None
        self.started = threading.Event()

        def feed(to):
            to.write(pcap([ipv4_frame(1, 2)]))
            to.flush()
            self.started.set()
            self.input.read()

        def work():
            try:
                worker.call(of_run(rules, "-", folder / "waiting.pcap"), feed=feed)
            except sluice.Error as error:
                self.error = error

        self.thread = threading.Thread(target=work)
        self.thread.start()
        assert self.started.wait(LIMIT)
        eventually("a process for the run", lambda: children(worker._process.pid))

    def end(self):
        os.close(self.write)
        self.thread.join(LIMIT)
        assert not self.thread.is_alive()
        self.input.close()
        return self.error


def without_times(told):
    return {key: value for key, value in told.items() if key in ("packets_in", "bytes_in", "packets_out", "bytes_out", "generated", "drops", "out")}


def test_a_run_is_that_of_the_program_alone(rules, capture, tmp_path, worker):
    alone = sluice.run(sluice.Graph.standard(acl=rules), capture, tmp_path / "alone.pcap", options=["--verdicts", str(tmp_path / "alone.txt")])
    for i in range(3):
        out, verdicts = tmp_path / f"{i}.pcap", tmp_path / f"{i}.txt"
        told, code = worker.call([*of_run(rules, capture, out), "--verdicts", str(verdicts)])
        assert code == 0 and without_times(told) == without_times(alone.details)
        assert out.read_bytes() == (tmp_path / "alone.pcap").read_bytes()
        assert verdicts.read_bytes() == (tmp_path / "alone.txt").read_bytes()
    told, _ = worker.call(of_run(rules, "-", tmp_path / "fed.pcap"), feed=lambda to: to.write(capture.read_bytes()))
    assert (tmp_path / "fed.pcap").read_bytes() == (tmp_path / "alone.pcap").read_bytes() and told["packets_in"] == alone.packets_in


def test_a_run_fails_by_itself(rules, capture, tmp_path, worker):
    worker.call(of_run(rules, capture, tmp_path / "0.pcap"))
    first = worker._process.pid
    before = len(os.listdir("/proc/self/fd"))
    damaged = tmp_path / "cut.pcap"
    damaged.write_bytes(capture.read_bytes()[:-3])
    for arguments, match in (
        (of_run(rules, tmp_path / "nowhere.pcap", tmp_path / "x.pcap"), "nowhere.pcap"),
        (of_run(rules, damaged, tmp_path / "x.pcap"), "cut.pcap"),
        (["run", "--no-such-option"], "--no-such-option"),
        (["show", "plan"], "a request is"),
    ):
        with pytest.raises(sluice.Error, match=match):
            worker.call(arguments)
    with pytest.raises(sluice.Error) as caught:  # who feeds is told of the run, not of the pipe
        worker.call(["run", "--no-such-option"], feed=lambda to: to.write(bytes(1 << 20)))
    assert "--no-such-option" in str(caught.value)
    with pytest.raises(ValueError, match="bytes"):
        worker.call(["run", "x" * 200_000])
    told, _ = worker.call(of_run(rules, capture, tmp_path / "1.pcap"))
    assert told["packets_in"] > 0 and (tmp_path / "1.pcap").read_bytes() == (tmp_path / "0.pcap").read_bytes()
    assert len(os.listdir("/proc/self/fd")) == before and worker._process.pid == first


def test_a_killed_run_is_told_and_the_next_one_runs(rules, capture, tmp_path, worker):
    waiting = Waiting(worker, rules, tmp_path)
    pid = worker._process.pid
    os.kill(children(pid)[0], signal.SIGKILL)
    error = waiting.end()
    assert isinstance(error, Died) and "SIGKILL" in str(error)
    told, _ = worker.call(of_run(rules, capture, tmp_path / "1.pcap"))
    assert told["packets_in"] > 0 and worker._process.pid == pid
    assert not (tmp_path / "waiting.pcap").exists()


def test_a_killed_worker_takes_its_run_with_it_and_is_started_anew(rules, capture, tmp_path, worker):
    waiting = Waiting(worker, rules, tmp_path)
    pid, run = worker._process.pid, children(worker._process.pid)[0]
    os.kill(pid, signal.SIGKILL)
    error = waiting.end()
    assert isinstance(error, Died) and "SIGKILL" in str(error)
    eventually("the run ends", lambda: not os.path.exists(f"/proc/{run}") or "\nState:\tZ" in pathlib.Path(f"/proc/{run}/status").read_text())
    told, _ = worker.call(of_run(rules, capture, tmp_path / "1.pcap"))
    assert told["packets_in"] > 0 and worker._process.pid != pid
    os.kill(worker._process.pid, signal.SIGKILL)  # while nothing runs: nobody need know
    worker._process.wait(LIMIT)
    worker.call(of_run(rules, capture, tmp_path / "2.pcap"))
    assert (tmp_path / "2.pcap").read_bytes() == (tmp_path / "1.pcap").read_bytes()


def test_an_interrupt_ends_the_run_in_order(rules, tmp_path, worker):
    waiting = Waiting(worker, rules, tmp_path)
    run = children(worker._process.pid)[0]
    worker.interrupt()
    # Before its input ends, which would be its end, too.
    eventually("the run ends", lambda: not os.path.exists(f"/proc/{run}"))
    assert isinstance(waiting.end(), sluice.Interrupted)
    with pytest.raises(sluice.Interrupted):
        worker.call(["run"])
    assert not (tmp_path / "waiting.pcap").exists()


# Runs until it is told to end, as its control socket does.
ENDLESS = """
import sys, sluice, sluice.ray
acl, capture, out, control = sys.argv[1:]
try:
    sluice.ray.run(sluice.Graph.standard(acl=acl), capture, out, engine="local", options=["--wait", "--control", control])
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_run_outlives_who_asked_for_it(rules, capture, tmp_path, number):
    control, out = tmp_path / "c.sock", tmp_path / "out"
    process = subprocess.Popen([sys.executable, "-c", ENDLESS, str(rules), str(capture), str(out), str(control)], stdout=subprocess.PIPE, text=True)
    try:
        eventually("a run that can be asked", control.exists)
        process.send_signal(number)
        said, _ = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
    assert said == ("interrupted\n" if number == signal.SIGINT else "")
    eventually("the end of the run", lambda: not control.exists())
    assert not (out / "report.json").exists() and not list(out.glob("0*"))


def test_a_part_whose_worker_died_is_tried_again(rules, capture, tmp_path, monkeypatch):
    real, died = sluice.ray.run_part, []

    def dying(part, job, worker):
        if len(died) < 2:
            died.append(part.name)
            raise Died("the program was ended by SIGKILL")
        return real(part, job, worker)

    monkeypatch.setattr(sluice.ray, "run_part", dying)
    graph = sluice.Graph.standard(acl=rules)
    report = sluice.ray.run(graph, capture, tmp_path / "out", engine="local", retries=2)
    assert report.packets_in == sluice.run(graph, capture, tmp_path / "x.pcap").packets_in and len(died) == 2
    died.clear()
    with pytest.raises(sluice.Error, match="SIGKILL"):
        sluice.ray.run(graph, capture, tmp_path / "other", engine="local", retries=1)


def test_what_is_no_request_is_answered(rules, capture, tmp_path):
    done = subprocess.run([program(), "worker"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 2 and "SOCK_SEQPACKET" in done.stderr
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = subprocess.Popen([program(), "worker"], stdin=theirs.fileno())
    theirs.close()
    ours.settimeout(LIMIT)
    null = os.open(os.devnull, os.O_RDWR)
    good = json.dumps({"arguments": of_run(rules, capture, tmp_path / "out.pcap")}).encode()
    try:
        socket.send_fds(ours, [b"{"], [null])
        ours.recv(4096)
        open_before = len(os.listdir(f"/proc/{process.pid}/fd"))
        for request, descriptors in (
            (b"{", [null] * 3),
            (b"[]", [null] * 3),
            (b'{"arguments": []}', [null] * 3),
            (b'{"arguments": ["run", 1]}', [null] * 3),
            (b'{"arguments": ["run", "\\u0000"]}', [null] * 3),
            (b'{"arguments": ["bench"]}', [null] * 3),
            (good, []),
            (good, [null] * 2),
            (good, [null] * 40),
            (good + b" " * 140_000, [null] * 3),
        ):
            socket.send_fds(ours, [request], descriptors)
            assert "a request is" in json.loads(ours.recv(4096))["error"], (request[:60], len(descriptors))
        socket.send_fds(ours, [good], [null] * 3)
        assert json.loads(ours.recv(4096)) == {"status": 0} and (tmp_path / "out.pcap").exists()
        eventually("nothing that was sent is open", lambda: len(os.listdir(f"/proc/{process.pid}/fd")) == open_before)
    finally:
        ours.close()
        os.close(null)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(LIMIT)
        process.kill()
    assert process.wait(LIMIT) == 0
