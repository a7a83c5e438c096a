#!/usr/bin/python3
"""The plug-in in a running VPP: what its rules do with packets, by the CPU and by a device (emu).

VPP_SOURCE, VPP_BUILD and SLUICE_VPP_PLUGIN name what is needed (vpp_process.py); without them this ends with 77, which
CTest counts as skipped, and says why. Arguments are those of unittest."""
import contextlib
import pathlib
import re
import sys
import unittest

import vpp_process

try:
    from scapy.all import Dot1Q, Ether, ICMP, IP, IPv6, Raw, TCP, UDP, rdpcap, wrpcap
    from scapy.layers.inet6 import IPv6ExtHdrFragment, IPv6ExtHdrHopByHop
except ImportError:
    Ether = None

NAME = re.compile(rb"[a-z0-9-]+ *\Z")  # that packets of these tests end with; VPP's own do not
IN_MAC, OUT_MAC, HOST = "02:fe:00:00:00:01", "02:fe:00:00:00:02", "02:00:00:00:00:99"


class Forwarding(vpp_process.Vpp):
    """pg0 receives, pg1 sends: all of IPv4 and IPv6, also by VLAN 5 of pg0."""

    def __enter__(self):
        super().__enter__()
        try:
            self.set_up()
        except BaseException:
            super().__exit__(*sys.exc_info())
            raise
        return self

    def set_up(self):
        for i, mac in ((0, IN_MAC), (1, OUT_MAC)):
            self.cli(f"create packet-generator interface pg{i}")
            self.do(f"set interface mac address pg{i} {mac}", f"set interface state pg{i} up",
                    f"set interface ip address pg{i} 172.16.{i}.1/24", f"set interface ip address pg{i} fd00:{i}::1/64")
        self.cli("create sub-interfaces pg0 5")
        self.do("set interface state pg0.5 up", "set interface ip address pg0.5 172.16.5.1/24",
                "set interface ip address pg0.5 fd00:5::1/64",
                f"set ip neighbor static pg1 172.16.1.2 {HOST}", f"set ip neighbor static pg1 fd00:1::2 {HOST}",
                "ip route add 0.0.0.0/0 via 172.16.1.2 pg1", "ip route add ::/0 via fd00:1::2 pg1")

    def send(self, packets, worker=None, name="s"):
        """What comes out of pg1 of these frames, once all are through."""
        self.captures = getattr(self, "captures", 0) + 1
        out = self.folder / f"{self.captures}.out.pcap"
        self.inject(packets, worker, name)
        self.cli(f"packet-generator capture pg1 pcap {out}")
        before = self.counts()["rx"]
        self.cli("packet-generator enable-stream")
        self.wait(lambda: self.counts()["rx"] - before >= len(packets), "every packet has come in")
        self.finish()
        self.cli("packet-generator capture pg1 disable")
        self.cli(f"packet-generator delete {name}")
        return [p for p in rdpcap(str(out)) if NAME.search(bytes(p))] if out.exists() else []

    def finish(self):
        """All that has come in is handed on. A command with a barrier ends the loop of each worker."""
        self.cli("packet-generator disable-stream")
        self.wait(lambda: not re.search(r"[1-9]\d* waiting", self.cli("show gpu-classify device")), "no frame waits")
        self.cli("packet-generator disable-stream")

    def inject(self, packets, worker=None, name="s", limit=None):
        path = self.folder / f"{name}.in.pcap"
        wrpcap(str(path), packets)
        at = "" if worker is None else f" worker {worker}"
        # Where packets are read from a capture, they are repeated up to the limit.
        self.do(f"packet-generator new pcap {path} source pg0 name {name}{at} limit {limit or len(packets)}")

    def counts(self):
        """Packets that pg0 received, that pg1 sent, and of pg0 (and its VLAN) that were dropped."""
        counts = {"rx": 0, "tx": 0, "drops": 0}
        interface = ""
        for line in self.cli("show interface").splitlines():
            words = line.split()
            if line and not line[0].isspace() and words:
                interface = words[0]
            if interface == "pg0" and "rx packets" in line:
                counts["rx"] = int(words[-1])
            if interface == "pg1" and "tx packets" in line:
                counts["tx"] = int(words[-1])
            if "drops" in words and interface.startswith("pg0"):
                counts["drops"] += int(words[-1])
        return counts


@contextlib.contextmanager
def forwarding(test, workers=None):
    """A VPP of a test's own; where the machine is too small the test is skipped."""
    vpp = Forwarding(workers=workers)
    try:
        vpp.__enter__()
    except vpp_process.Missing as missing:
        test.skipTest(str(missing))
    with contextlib.ExitStack() as stack:
        stack.push(vpp.__exit__)
        yield vpp


def ip4(l4, src="10.0.0.1", dst="192.0.2.7", **fields):
    return Ether(src=HOST, dst=IN_MAC) / IP(src=src, dst=dst, ttl=64, **fields) / l4


def ip6(l4, src="2001:db8::1", dst="2001:db8:1::7", **fields):
    return Ether(src=HOST, dst=IN_MAC) / IPv6(src=src, dst=dst, hlim=64, **fields) / l4


def named(packet, name):
    """Packets are told apart by their payload."""
    return packet / Raw(name.ljust(24).encode())


def names(packets):
    return sorted(bytes(p)[-24:].decode().strip() for p in packets)


class Rules(unittest.TestCase):
    """One VPP for all: each test begins without rules."""
    device = "cpu"
    workers = None

    @classmethod
    def setUpClass(cls):
        try:
            cls.vpp = Forwarding(workers=cls.workers, plugins=("sluice", "sluice_probe"))
            cls.vpp.__enter__()
        except vpp_process.Missing as missing:
            raise unittest.SkipTest(str(missing))
        cls.addClassCleanup(cls.vpp.__exit__, None, None, None)

    def setUp(self):
        self.load("# none\n")
        self.vpp.do("gpu-classify default pass", f"gpu-classify device {self.device}", "gpu-classify enable pg0")

    def tearDown(self):
        if self.vpp.process.poll() is None:
            for interface in ("pg0", "pg0.5", "pg1"):
                self.vpp.do(f"gpu-classify disable {interface}", f"gpu-classify disable {interface} output")

    def load(self, rules, name="rules.acl"):
        path = self.vpp.folder / name
        path.write_text(rules)
        self.vpp.do(f"gpu-classify file {path}")

    def passes(self, packets, want):
        self.assertEqual(names(self.vpp.send([named(p, n) for n, p in packets.items()])), sorted(want))

    def unmatched(self):
        return int(re.search(r"\n +none +(\d+)", self.vpp.cli("show gpu-classify rules"))[1])

    def test_pass_and_drop(self):
        self.load("permit tcp from 10.0.0.0/8 to any port 80\ndeny tcp from any to any\n")
        none = self.unmatched()
        self.passes({"web": ip4(TCP(dport=80)), "ssh": ip4(TCP(dport=22)), "udp": ip4(UDP(dport=80)),
                     "other": ip4(TCP(dport=80), src="11.0.0.1")}, ["web", "udp"])
        rules = self.vpp.cli("show gpu-classify rules")
        self.assertRegex(rules, r"\n +1 +1 +\d+  permit tcp .*rules.acl:1")
        self.assertRegex(rules, r"\n +2 +2 +\d+  deny tcp .*rules.acl:2")
        self.assertEqual(self.unmatched(), none + 1)

    def test_default_drop(self):
        self.load("permit tcp from any to any port 80\n")
        self.vpp.do("gpu-classify default drop")
        self.passes({"web": ip4(TCP(dport=80)), "udp": ip4(UDP(dport=80)), "web6": ip6(TCP(dport=80))}, ["web", "web6"])

    def test_ipv6_and_families(self):
        self.load("deny tcp from 2001:db8::/64 to any port 80\ndeny udp from 0.0.0.0/0 to any\n")
        self.passes({"web6": ip6(TCP(dport=80)), "far6": ip6(TCP(dport=80), src="2001:db8:0:1::1"),
                     "udp6": ip6(UDP(dport=80)), "udp4": ip4(UDP(dport=80)), "web4": ip4(TCP(dport=80))},
                    ["far6", "udp6", "web4"])

    def test_tcp_flags_by_command(self):
        self.vpp.do("gpu-classify rule add proto 6 dst 192.0.2.0/24 tcpflags 0x02/0x12 action drop")
        self.passes({"syn": ip4(TCP(flags="S")), "synack": ip4(TCP(flags="SA")), "ack": ip4(TCP(flags="A")),
                     "syn6": ip6(TCP(flags="S"))}, ["synack", "ack", "syn6"])
        self.vpp.do("gpu-classify rule del 1")
        self.passes({"syn": ip4(TCP(flags="S"))}, ["syn"])

    def test_ranges_by_command(self):
        self.vpp.do("gpu-classify rule add proto 17 src 10.0.0.0/8 dst 0.0.0.0/0 sport 1000-1999 dport 53-54 action drop")
        packets = {f"{s}-{d}": ip4(UDP(sport=s, dport=d))
                   for s in (999, 1000, 1999, 2000) for d in (52, 53, 54, 55)}
        self.passes(packets, [n for n in packets if not ("1000-" in n or "1999-" in n) or "-52" in n or "-55" in n])

    def test_fragments_and_headers_that_are_not_plain(self):
        self.load("deny ip from any to any later-frag\ndeny tcp from any to any port 80\n"
                  "deny icmp from any to any icmp-type 8\n")
        first, later = dict(flags="MF", frag=0), dict(flags=0, frag=10)
        hop = IPv6ExtHdrHopByHop()
        self.passes({
            "first-81": ip4(TCP(dport=81), **first), "first-80": ip4(TCP(dport=80), **first),
            "later": ip4(Raw(b"x" * 40), proto=6, **later),
            "later6": ip6(IPv6ExtHdrFragment(offset=10, nh=6) / Raw(b"x" * 40)),
            "first6-80": ip6(IPv6ExtHdrFragment(offset=0, m=1) / TCP(dport=80)),
            "first6-81": ip6(IPv6ExtHdrFragment(offset=0, m=1) / TCP(dport=81)),
            "fragment-no-more": ip6(IPv6ExtHdrFragment(offset=0, m=0) / TCP(dport=80)),
            "echo": ip4(ICMP(type=8)), "reply": ip4(ICMP(type=0)),
            "short": ip4(Raw(b""), proto=6)}, ["first-81", "first6-81", "reply", "short"])

    def test_mark_goes_into_the_buffer_and_chooses_a_node(self):
        self.load("mark(7) udp from any to any port 53\nmark(300) udp from any to any\n")
        self.vpp.cli("clear errors")
        packets = {"dns": ip4(UDP(dport=53)), "udp": ip4(UDP(dport=54)), "tcp": ip4(TCP())}
        self.passes(packets, packets)
        node = "sluice-classify-ip4"
        self.assertEqual(self.vpp.errors(node).get("packets marked by a rule"), 2)
        # Nodes that drop: packets of the mark go there, and are counted as such.
        for target in ("error-drop", "ip4-drop", "ip6-drop", "ip4-punt"):
            self.vpp.do(f"gpu-classify mark 7 next {target}")
            self.vpp.cli("clear errors")
            self.passes(packets, ["udp", "tcp"])
            self.assertEqual(self.vpp.errors(node).get("marked packets given to their node"), 1, target)
        self.vpp.do("gpu-classify mark 7 next ip6-lookup")
        self.assertIn("mark 7 next ip4-lookup ip6-lookup, of input", self.vpp.cli("show gpu-classify"))
        self.passes(packets, packets)
        self.vpp.do("gpu-classify mark 7 del")
        self.assertNotIn("mark 7", self.vpp.cli("show gpu-classify"))
        self.passes(packets, packets)
        for command, says in (("mark 300 next error-drop", "only marks below 256"), ("mark 0 next error-drop", "mark 0 is that of packets without"),
                              ("mark 7 next nowhere", "no node 'nowhere'"), ("mark 7 del", "mark 7 has no next node")):
            self.assertIn(says, self.vpp.cli(f"gpu-classify {command}"))

    def test_a_packet_that_no_rule_can_judge_is_dropped(self):
        self.load("mark(7) ip from any to any\n")
        hop = IPv6ExtHdrHopByHop()
        # A chain of headers that goes on behind the packet, and one that is longer than is read.
        past = ip6(Raw(b"\x06\x07\0\0\0\0\0\0" + b"x" * 8), nh=60)
        long = ip6(Raw((b"\x3c\0\0\0\0\0\0\0" * 12) + bytes(TCP(dport=80))), nh=60)
        packets = {"tcp": ip6(TCP()), "hop": ip6(hop / TCP()), "long": long}
        for default in ("pass", "drop"):
            self.vpp.do(f"gpu-classify default {default}", "clear gpu-classify")
            self.vpp.cli("clear errors")
            self.assertEqual(names(self.vpp.send([named(p, n) for n, p in packets.items()] + [past])), ["hop", "tcp"])
            self.assertEqual(self.vpp.errors("sluice-classify-ip6").get("packets that no rule can judge"), 2)
            self.assertEqual(sum(map(sum, self.vpp.statistics("/sluice/input/unusable"))), 2)
            self.assertEqual(sum(map(sum, self.vpp.statistics("/sluice/input/marked"))), 2)

    def test_fields_that_are_cut_off(self):
        """Every length of a layer-4 header, whole and as a first fragment: what is there is judged, and what could be completed is dropped."""
        self.load("".join(f"deny {p} from any to any port 22\n" for p in ("tcp", "udp", "sctp", "dccp", "udplite"))
                  + "deny tcp from any to any flags SYN\ndeny icmp from any to any icmp-type 8 icmp-code 0\n"
                  "deny icmp6 from any to any icmp-type 128 icmp-code 0\npermit ip from any to any\n")
        whole = {6: 20, 17: 8, 132: 12, 33: 12, 136: 8, 1: 8, 58: 8}

        def header(protocol, denied):
            if protocol in (1, 58):
                return bytes([(8 if protocol == 1 else 128) if denied else 3, 0]) + bytes(22)
            return bytes([4, 0, 0, 22 if denied else 23]) + bytes(9) + b"\x10" + bytes(10)

        def passes(protocol, length, first, denied):
            icmp = protocol in (1, 58)
            if first and (length < whole[protocol] if protocol == 6 else length < (2 if icmp else 4)):
                return False
            return not (denied and length >= (2 if icmp else 4))

        self.vpp.cli("clear errors")
        frames, want = [], []
        for family, protocol, first, denied in ((f, p, first, d) for f in (4, 6) for p in whole for first in (False, True) for d in (False, True)):
            if protocol == (58 if family == 4 else 1):
                continue
            for length in range(whole[protocol] + 1):
                l4 = Raw(header(protocol, denied)[:length])
                if family == 4:
                    packet = ip4(l4, proto=protocol, flags="MF" if first else 0)
                elif first:
                    packet = ip6(IPv6ExtHdrFragment(offset=0, m=1, nh=protocol) / l4)
                else:
                    packet = ip6(l4, nh=protocol)
                # The name is behind the packet, as padding is.
                name = f"{family}-{protocol}-{length}-{int(first)}-{int(denied)}"
                frames.append(Ether(bytes(packet) + name.ljust(24).encode()))
                if passes(protocol, length, first, denied):
                    want.append(name)
        # Flags alone, in the last byte that they need.
        for length in (13, 14, 20):
            syn = bytes([4, 0, 0, 23]) + bytes(9) + b"\x02" + bytes(6)
            frames.append(Ether(bytes(ip4(Raw(syn[:length]), proto=6)) + f"syn-{length}".ljust(24).encode()))
        want.append("syn-13")
        # Of TCP over the end of its first 8 bytes; the card of VPP's IPv4 input refuses that itself.
        for offset in (1, 2):
            packet = ip6(IPv6ExtHdrFragment(offset=offset, m=0, nh=6) / Raw(bytes(16)))
            frames.append(Ether(bytes(packet) + f"offset-{offset}".ljust(24).encode()))
        want.append("offset-2")
        self.assertEqual(names(self.vpp.send(frames)), sorted(want))

    def probed(self):
        """What the probe has seen since it was asked before: {mark, "other" or "given": packets}."""
        return {key: int(count) for key, count in re.findall(r"^(mark \d+|other|given): (\d+)", self.vpp.cli("show sluice-probe"), re.M)}

    def with_probe(self):
        if "sluice_probe_plugin.so" not in self.vpp.cli("show plugins"):
            self.skipTest("the plug-in sluice_probe is not loaded")
        self.vpp.do("sluice-probe enable pg0")
        self.addCleanup(self.vpp.do, "sluice-probe disable pg0")
        self.probed()

    def test_every_packet_has_its_own_mark(self):
        self.with_probe()
        self.load("mark(7) udp from any to any port 53\npermit tcp from any to any port 80\nmark(9) tcp from any to any port 443\n")
        # The feature before has left another mark in every buffer, as a packet before might have.
        for make in (ip4, ip6):
            packets = {"dns": make(UDP(dport=53)), "web": make(TCP(dport=80)), "tls": make(TCP(dport=443)), "none": make(UDP(dport=54))}
            self.passes(packets, packets)
            self.assertEqual(self.probed(), {"mark 7": 1, "mark 9": 1, "mark 0": 2, "given": 0})
        self.vpp.do("gpu-classify default drop")
        self.passes({"web": ip4(TCP(dport=80)), "none": ip4(UDP(dport=54))}, ["web"])
        self.assertEqual(self.probed(), {"mark 0": 1, "given": 0})

    def test_marks_go_to_nodes_that_are_registered_alone(self):
        self.load("mark(7) udp from any to any\n")
        before = self.vpp.cli("show gpu-classify")
        nodes = re.findall(r"^(\S+)", self.vpp.cli("show vlib graph"), re.M)
        for known in ("ip4-input", "interface-output", "ethernet-input", "ip4-rewrite", "sluice-classify-ip4"):
            self.assertIn(known, nodes)
        allowed = {"error-drop", "ip4-drop", "ip6-drop", "ip4-punt", "ip6-punt", "ip4-lookup", "ip6-lookup", "sluice-probe-target"}
        # Longer names are cut there.
        for node in {name for name in nodes if len(name) < 26} - allowed:
            self.assertIn("is not registered as a node of marks", self.vpp.cli(f"gpu-classify mark 7 next {node}"), node)
        self.assertEqual(self.vpp.cli("show gpu-classify"), before)
        self.passes({"udp": ip4(UDP()), "tcp": ip4(TCP())}, ["udp", "tcp"])

    def test_a_node_that_another_plugin_registers(self):
        self.with_probe()
        self.load("mark(7) udp from any to any\n")
        self.vpp.do("gpu-classify mark 7 next sluice-probe-target")
        self.addCleanup(self.vpp.do, "gpu-classify mark 7 del")
        self.passes({"udp": ip4(UDP()), "udp6": ip6(UDP()), "tcp": ip4(TCP())}, ["tcp"])
        self.assertEqual(self.probed(), {"mark 0": 1, "given": 2})
        # It takes packets that come in: others of the mark are dropped, and that is counted.
        self.vpp.do("gpu-classify disable pg0", "gpu-classify enable pg1 output")
        self.vpp.cli("clear errors")
        self.passes({"udp": ip4(UDP()), "udp6": ip6(UDP()), "tcp": ip4(TCP())}, ["tcp"])
        self.assertEqual(self.vpp.errors("sluice-classify-ip4-output").get("marked, but their node takes others"), 1)
        self.assertEqual(self.vpp.errors("sluice-classify-ip6-output").get("marked, but their node takes others"), 1)
        for command, says in (("sluice-probe-target nowhere 1", "'sluice-probe-target' is a target already"),
                              ("nowhere ip6-rewrite 1", "no node 'nowhere'"), ("ip4-rewrite ip6-rewrite 16", "packets 16"),
                              ("ip4-rewrite ip6-rewrite 0", "packets 0")):
            self.assertIn(says, self.vpp.cli(f"sluice-probe register {command}"))

    def test_counters_of_the_node(self):
        self.load("permit tcp from any to any\ndeny udp from any to any\n")
        self.vpp.cli("clear errors")
        self.passes({"a": ip4(TCP()), "b": ip4(TCP()), "c": ip4(UDP()), "d": ip4(ICMP())}, ["a", "b", "d"])
        errors = self.vpp.errors("sluice-classify-ip4")
        self.assertEqual(errors["packets passed by a rule"], 2)
        self.assertEqual(errors["packets dropped by a rule"], 1)
        self.assertEqual(errors["packets passed that no rule matches"], 1)

    def test_output_and_subinterfaces(self):
        self.load("deny udp from any to any\n")
        tagged = ip4(UDP())
        tagged = Ether(src=HOST, dst=IN_MAC) / Dot1Q(vlan=5) / tagged[IP]
        tagged6 = Ether(src=HOST, dst=IN_MAC) / Dot1Q(vlan=5) / ip6(UDP())[IPv6]
        packets = {"plain": ip4(UDP()), "tagged": tagged, "tagged6": tagged6, "tcp": ip4(TCP())}
        self.passes(packets, ["tagged", "tagged6", "tcp"])
        self.vpp.do("gpu-classify enable pg0.5", "gpu-classify disable pg0")
        self.passes(packets, ["plain", "tcp"])
        self.vpp.do("gpu-classify disable pg0.5", "gpu-classify enable pg1 output")
        self.passes(packets, ["tcp"])
        self.assertIn("output of pg1", self.vpp.cli("show gpu-classify"))
        self.vpp.do("gpu-classify disable pg1 output")
        self.passes(packets, packets)

    def test_enabled_twice_is_enabled_once(self):
        self.load("deny udp from any to any\n")
        self.vpp.do("gpu-classify enable pg0", "gpu-classify enable pg0", "gpu-classify disable pg0")
        self.passes({"udp": ip4(UDP())}, ["udp"])
        self.vpp.do("gpu-classify disable pg0")

    def test_trace_names_the_rule(self):
        self.load("# a comment\npermit tcp from any to any port 80\ndeny udp from any to any port 53\n")
        self.vpp.cli("clear trace")
        self.vpp.do("trace add pg-input 10")
        self.passes({"web": ip4(TCP(dport=80)), "dns": ip4(UDP(dport=53)), "icmp": ip4(ICMP())}, ["web", "icmp"])
        trace = self.vpp.cli("show trace")
        self.assertRegex(trace, r"gpu-classify: pass, rule 1 \(.*rules.acl:2\) permit tcp")
        self.assertRegex(trace, r"gpu-classify: drop, rule 2 \(.*rules.acl:3\) deny udp")
        self.assertRegex(trace, r"gpu-classify: pass, no rule matches")
        # The trace goes on behind the node.
        self.assertIn("pg1-tx", trace)
        self.vpp.cli("clear trace")

    def test_many_flows_as_the_rules_say_in_order(self):
        self.load("".join(f"deny tcp from any to any port {p}\n" for p in range(1000, 2000, 7)))
        packets = [named(ip4(TCP(dport=1000 + i % 1000)), str(i)) for i in range(3000)]
        got = [int(bytes(p)[-24:]) for p in self.vpp.send(packets)]
        self.assertEqual(got, [i for i in range(3000) if i % 1000 % 7 != 0])

    def test_bad_input_changes_nothing(self):
        self.load("deny udp from any to any\n")
        before = self.vpp.cli("show gpu-classify")
        bad = self.vpp.folder / "bad.acl"
        bad.write_text("permit tcp from any to any\npermit tcp from 10.0.0.0/33 to any\ndeny udp from any to any port 9-1\n")
        answer = self.vpp.cli(f"gpu-classify file {bad}")
        self.assertRegex(answer, r"bad.acl:2:17")
        self.assertRegex(answer, r"bad.acl:3:")
        for command, says in (
                ("gpu-classify file /nowhere/x.acl", "/nowhere/x.acl"),
                (f"gpu-classify file {bad} format latin", "latin"),
                (f"gpu-classify file {bad} and more", "expected: gpu-classify file"),
                ("gpu-classify file", "expected: gpu-classify file"),
                ("gpu-classify rule add proto 6 src 10.0.0.0/8 action fly", "gpu-classify:1:"),
                ("gpu-classify rule add", "expected: gpu-classify rule"),
                ("gpu-classify rule del 7", "7"),
                ("gpu-classify rule fly", "expected: gpu-classify rule"),
                ("gpu-classify device tpu", "tpu"),
                ("gpu-classify device cuda:4000", "cuda"),
                ("gpu-classify device emu mode fast", "launch, persistent or adaptive"),
                ("gpu-classify enable pg99", "pg99"),
                ("gpu-classify enable", "expected: gpu-classify enable"),
                ("gpu-classify default perhaps", "expected: gpu-classify default")):
            answer = self.vpp.cli(command)
            self.assertIn(says, answer, command)
        self.assertEqual(self.vpp.cli("show gpu-classify"), before)
        self.passes({"udp": ip4(UDP()), "tcp": ip4(TCP())}, ["tcp"])

    def test_a_command_is_taken_whole_or_not_at_all(self):
        self.load("deny udp from any to any\nmark(7) tcp from any to any port 7\n")
        self.vpp.do("gpu-classify mark 7 next error-drop")
        self.addCleanup(self.vpp.do, "gpu-classify mark 7 del")
        shown = lambda: self.vpp.cli("show gpu-classify") + self.vpp.cli("show gpu-classify rules")  # noqa: E731
        before, rule = shown(), "gpu-classify rule add"
        for command, word in (
                ("gpu-classify default drop now", "now"), ("gpu-classify default drop pass", "pass"), ("gpu-classify default drop drop", "drop"),
                ("gpu-classify enable pg1 pg0", "pg0"), ("gpu-classify enable pg1 input output", "output"), ("gpu-classify enable pg1 output output", "output"),
                ("gpu-classify enable pg1 now", "now"), ("gpu-classify enable pg1x", "pg1x"), ("gpu-classify disable pg0 input input", "input"),
                ("gpu-classify disable pg0 pg1", "pg1"), ("gpu-classify disable pg0 now", "now"),
                ("gpu-classify mark 7 del now", "now"), ("gpu-classify mark 8 next error-drop now", "now"), ("gpu-classify mark 8 next error-drop next ip4-drop", "next"),
                ("gpu-classify mark 8 del next error-drop", "next"), ("gpu-classify mark x next error-drop", "x"), ("gpu-classify mark -1 next error-drop", "-1"),
                ("gpu-classify mark 0x8 next error-drop", "0x8"), ("gpu-classify mark 4294967304 next error-drop", "4294967304"),
                ("gpu-classify mark 99999999999999999999 next error-drop", "99999999999999999999"), ("gpu-classify mark 8 to error-drop", "to"),
                ("gpu-classify mark 8", "expected"), ("gpu-classify mark 8 next", "expected"), ("gpu-classify mark", "no number"),
                ("gpu-classify device emu now", "now"), ("gpu-classify device emu mode launch mode adaptive", "mode"), ("gpu-classify device emu mode", "expected"),
                ("gpu-classify device", "expected"), ("gpu-classify device cpu now", "now"),
                ("gpu-classify file /nowhere format native now", "now"), ("gpu-classify file /nowhere format", "expected"),
                ("gpu-classify rule add", "expected"), ("gpu-classify rule del", "expected"), ("gpu-classify rule replace", "expected"),
                ("gpu-classify rule replace 1", "missing"), ("gpu-classify rule replace x proto 6 action drop", "x"), ("gpu-classify rule replace 9 proto 6 action drop", "9"),
                ("gpu-classify rule replace 0 proto 6 action drop", "0"), ("gpu-classify rule change 1", "change"),
                ("gpu-classify rule del 1 2", "1"), ("gpu-classify rule del 1 now", "1"), (f"{rule} at 9 proto 6 action drop", "9"), (f"{rule} at x proto 6 action drop", "x"),
                (f"{rule} proto 6 action drop action pass", "action"), (f"{rule} proto 6 action drop now", "now"), (f"{rule} proto 6 action", "action"),
                (f"{rule} proto 6 proto 17 action drop", "proto"), (f"{rule} src 10.0.0.0/8 src 11.0.0.0/8 action drop", "src"), (f"{rule} proto 6", "action"),
                (f"{rule} dst 10.0.0.0/8 dst 11.0.0.0/8 action drop", "dst"), (f"{rule} proto 6 sport 1 sport 2 action drop", "sport"),
                (f"{rule} proto 6 dport 1 dport 2 action drop", "dport"), (f"{rule} proto 6 tcpflags 2/2 tcpflags 2/2 action drop", "tcp-flags"),
                (f"{rule} proto 17 tcpflags 0x02/0x12 action drop", "tcp-flags"), (f"{rule} proto 17 tcpflags", "tcp-flags"), (f"{rule} proto 6 tcpflags action drop", "action"),
                (f"{rule} proto 6 tcpflags 0x02/0x112 action drop", "0x02/0x112"), (f"{rule} proto 6 tcpflags 0x02/0x10 action drop", "0x02"),
                (f"{rule} proto 1 dport 80 action drop", "dport"), (f"{rule} proto 1 dport", "dport"), (f"{rule} proto icmp sport 80 action drop", "sport"),
                (f"{rule} src 10.0.0.1/8 action drop", "10.0.0.1/8"), (f"{rule} dst 2001:db8::1/32 action drop", "2001:db8::1/32"), (f"{rule} src action drop", "action"),
                (f"{rule} src 10.0.0.0/33 action drop", "10.0.0.0/33"), (f"{rule} src 10.0.0.0/8 dst ::/0 action drop", "families"),
                (f"{rule} proto 256 action drop", "256"), (f"{rule} proto -1 action drop", "-1"), (f"{rule} proto action drop", "action"),
                (f"{rule} proto 6 dport 65536 action drop", "65536"), (f"{rule} proto 6 dport 9-1 action drop", "9-1"), (f"{rule} proto 6 dport action drop", "action"),
                (f"{rule} proto 6 action mark 4294967296", "4294967296"), (f"{rule} proto 6 action fly", "fly"),
                ("clear gpu-classify now", "now"), ("show gpu-classify now", "now"), ("show gpu-classify latency now", "now"), ("show gpu-classify device now", "now"),
                ("show gpu-classify rules now", "now"), ("show gpu-classify rules from", "from"), ("show gpu-classify rules from 0", "0"), ("show gpu-classify rules from x", "x"),
                ("show gpu-classify rules from 1 from 2", "from"), ("show gpu-classify rules count 1 count 1", "count"), ("show gpu-classify rules hits hits", "hits"),
                ("show gpu-classify rules match a match b", "match"), ("show gpu-classify rules match", "match"), ("show gpu-classify rules count -1", "-1")):
            answer = self.vpp.cli(command)
            self.assertIn(word, answer, command)
            self.assertEqual(shown(), before, command)
        self.passes({"udp": ip4(UDP()), "tcp": ip4(TCP(dport=80)), "seven": ip4(TCP(dport=7))}, ["tcp"])

    def test_a_rule_is_replaced_in_its_place(self):
        self.load("deny udp from any to any port 53\ndeny tcp from any to any port 80\npermit ip from any to any\n")
        packets = {"dns": ip4(UDP(dport=53)), "web": ip4(TCP(dport=80)), "tls": ip4(TCP(dport=443))}
        self.passes(packets, ["tls"])
        self.vpp.do("gpu-classify rule replace 2 proto 6 dport 443 action drop")
        self.passes(packets, ["web"])
        self.vpp.do("gpu-classify rule replace 1 permit udp from any to any")
        self.passes(packets, ["dns", "web"])
        self.assertIn("3 rules", self.vpp.cli("show gpu-classify"))

    def test_long_lists_are_shown_in_parts(self):
        self.load("".join(f"deny tcp from any to any port {1000 + i}\n" for i in range(300)) + "permit udp from any to any port 53\n")
        self.passes({"a": ip4(TCP(dport=1007)), "b": ip4(TCP(dport=1299)), "c": ip4(UDP(dport=53))}, ["c"])

        def shown(words):
            lines = self.vpp.cli(f"show gpu-classify rules {words}").splitlines()
            return [int(line.split()[0]) for line in lines[1:] if line.split()[0].isdigit()]
        for words, want in (("", list(range(1, 302))), ("from 299", [299, 300, 301]), ("from 5 count 2", [5, 6]), ("count 0", []), ("from 302", []),
                            ("hits", [8, 300, 301]), ("hits from 9 count 1", [300]), ("match udp", [301]), ("match 100", [*range(1, 11), 101]),
                            ("match rules.acl count 2", [1, 2]), ("hits match tcp from 2", [8, 300]), ("match nothing", [])):
            self.assertEqual(shown(words), want, words)

    def test_counters_and_times_can_be_cleared(self):
        self.load("permit tcp from any to any port 80\ndeny udp from any to any\n")
        packets = {"web": ip4(TCP(dport=80)), "udp": ip4(UDP()), "icmp": ip4(ICMP())}
        self.passes(packets, ["web", "icmp"])
        self.vpp.do("clear gpu-classify")
        rules = self.vpp.cli("show gpu-classify rules")
        self.assertEqual(re.findall(r"^ +(\w+) +(\d+) +(\d+)", rules, re.M), [("1", "0", "0"), ("2", "0", "0"), ("none", "0", "0")])
        self.assertNotRegex(self.vpp.cli("show gpu-classify"), r"(?m)^(gather keys|look up|hand on) +[1-9]")
        for name in ("passed", "dropped", "unmatched-passed"):
            self.assertEqual(sum(map(sum, self.vpp.statistics(f"/sluice/input/{name}"))), 0)
        self.passes(packets, ["web", "icmp"])
        rules = self.vpp.cli("show gpu-classify rules")
        self.assertEqual(re.findall(r"^ +(\w+) +(\d+)", rules, re.M), [("1", "1"), ("2", "1"), ("none", "1")])

    def test_times_of_each_stage_are_shown(self):
        self.load("permit tcp from any to any\n")
        self.passes({"tcp": ip4(TCP())}, ["tcp"])
        for command in ("show gpu-classify", "show gpu-classify latency"):
            text = self.vpp.cli(command)
            self.assertRegex(text, r"stage +frames +p50 us +p99 us +p99.9 us")
            self.assertRegex(text, r"gather keys +[1-9]\d* +\d+\.\d\d +\d+\.\d\d +\d+\.\d\d")

    def test_counters_of_interfaces_are_in_the_segment_of_statistics(self):
        self.load("permit tcp from any to any port 80\ndeny udp from any to any port 53\nmark(7) tcp from any to any port 443\n")
        self.vpp.do("gpu-classify enable pg0.5", "gpu-classify enable pg1 output", "clear gpu-classify")
        tag = lambda p: Ether(src=HOST, dst=IN_MAC) / Dot1Q(vlan=5) / p[Ether].payload  # noqa: E731
        packets = {"web": ip4(TCP(dport=80)), "dns": ip4(UDP(dport=53)), "tls": ip4(TCP(dport=443)), "none": ip6(UDP(dport=9)),
                   "tagged": tag(ip4(TCP(dport=80))), "tagged6": tag(ip6(UDP(dport=53)))}
        self.passes(packets, ["web", "tls", "none", "tagged"])
        index = {line.split()[0]: int(line.split()[1]) for line in self.vpp.cli("show interface").splitlines() if line[:1].strip() and line.split()[1].isdigit()}
        def counts(way, interface):
            found = {}
            for fate in ("passed", "dropped", "marked", "unmatched-passed", "unmatched-dropped"):
                n = sum(thread[index[interface]] for thread in self.vpp.statistics(f"/sluice/{way}/{fate}"))
                if n:
                    found[fate] = n
            return found
        self.assertEqual(counts("input", "pg0"), {"passed": 1, "dropped": 1, "marked": 1, "unmatched-passed": 1})
        self.assertEqual(counts("input", "pg0.5"), {"passed": 1, "dropped": 1})
        self.assertGreaterEqual(counts("output", "pg1")["passed"], 2)
        self.assertEqual(counts("input", "pg1"), {})
        self.vpp.do("gpu-classify default drop", "clear gpu-classify")
        self.passes({"none": ip4(ICMP())}, [])
        self.assertEqual(counts("input", "pg0"), {"unmatched-dropped": 1})

    def test_bytes_are_those_of_the_packet_without_padding(self):
        self.load("permit udp from any to any\npermit tcp from any to any\npermit icmp from any to any\n")
        def padded(packet):
            frame = bytes(packet)
            return Ether(frame + bytes(80 - len(frame)))
        sizes = []
        for packet in (ip4(UDP() / Raw(b"ab")), ip4(TCP()), ip4(ICMP()), ip6(UDP()), ip4(UDP(), options=[])):
            sizes.append(len(packet) - 14)
            self.vpp.send([padded(packet)])
        counted = {int(n): int(b) for n, b in re.findall(r"^ +(\d+) +\d+ +(\d+)  permit", self.vpp.cli("show gpu-classify rules"), re.M)}
        self.assertEqual(counted, {1: sizes[0] + sizes[3] + sizes[4], 2: sizes[1], 3: sizes[2]})

    def test_formats(self):
        folder = self.vpp.folder
        (folder / "a").write_text("@10.0.0.0/8\t192.0.2.0/24\t0 : 65535\t80 : 80\t0x06/0xFF\n")
        self.vpp.do(f"gpu-classify file {folder}/a", "gpu-classify default drop")
        self.passes({"web": ip4(TCP(dport=80)), "ssh": ip4(TCP(dport=22))}, ["web"])
        (folder / "b").write_text("set acl-plugin acl deny src 10.0.0.0/8 dst 192.0.2.0/24 proto 6 dport 80, permit\n")
        self.vpp.do(f"gpu-classify file {folder}/b format vpp", f"gpu-classify file {folder}/b")
        self.passes({"web": ip4(TCP(dport=80)), "ssh": ip4(TCP(dport=22))}, ["ssh"])

    def test_an_interface_that_goes_away(self):
        self.vpp.cli("create packet-generator interface pg7")
        self.vpp.do("gpu-classify enable pg7", "gpu-classify enable pg7 output")
        self.assertIn("pg7", self.vpp.cli("show gpu-classify"))
        self.vpp.cli("delete packet-generator interface pg7")
        self.assertNotIn("output of", self.vpp.cli("show gpu-classify"))
        self.load("deny udp from any to any\n")
        self.passes({"udp": ip4(UDP()), "tcp": ip4(TCP())}, ["tcp"])


class Device(Rules):
    """The same by a device: frames are handed on by the node that polls."""
    device = "emu mode persistent"

    def test_the_device_has_answered(self):
        self.load("permit tcp from any to any\n")
        self.passes({"tcp": ip4(TCP()), "tcp6": ip6(TCP())}, ["tcp", "tcp6"])
        self.assertRegex(self.vpp.cli("show gpu-classify device"), r"device emu .*mode persistent.*\n.*[1-9]\d* frames by the device")
        latency = self.vpp.cli("show gpu-classify latency")
        self.assertRegex(latency, r"device +[1-9]")

    def test_devices_change_under_traffic(self):
        self.load("permit tcp from any to any\ndeny udp from any to any\n")
        packets = [named(ip4(TCP(dport=1 + i % 60000) if i % 3 else UDP()), str(i)) for i in range(600)]
        for device in ("cpu", "emu mode launch", "emu mode adaptive", "emu mode persistent") * 3:
            self.vpp.do(f"gpu-classify device {device}")
            self.assertEqual([int(bytes(p)[-24:]) for p in self.vpp.send(packets)], [i for i in range(600) if i % 3])


class Traffic(unittest.TestCase):
    """Rules, devices and interfaces change while workers forward: no packet is lost, and none passes that should not."""

    def run_with(self, workers, device):
        with forwarding(self, workers) as vpp:
            folder = vpp.folder
            # The deny rule stands in all lists, at different places.
            lists = []
            for k in (0, 1, 500):
                path = folder / f"list{k}"
                path.write_text("".join(f"permit tcp from 10.9.{i // 250}.{i % 250} to any\n" for i in range(k))
                                + "deny udp from any to any\npermit ip from any to any\n")
                lists.append(path)
            vpp.do(f"gpu-classify file {lists[0]}", f"gpu-classify device {device}", "gpu-classify enable pg0")
            packets = [named(ip4(TCP(dport=80 + i % 50) if i % 2 else UDP()), str(i)) for i in range(64)]
            sent = 2_000_000 if device == "cpu" else 20_000  # emu is slow where processors are few
            for worker in range(workers or 1):
                vpp.inject(packets, worker if workers else None, f"s{worker}", sent)
            total = sent * (workers or 1)
            before = vpp.counts()
            vpp.cli("clear errors")
            vpp.cli("packet-generator enable-stream")
            changes = 0
            while changes == 0 or (vpp.counts()["rx"] - before["rx"] < total and changes < 3000):
                vpp.do(f"gpu-classify file {lists[changes % 3]}",
                       "gpu-classify rule add at 1 proto 132 action drop", "gpu-classify rule del 1")
                changes += 3
            vpp.wait(lambda: vpp.counts()["rx"] - before["rx"] >= total, "every packet has come in")
            vpp.finish()
            errors = vpp.errors("sluice-classify-ip4")
            self.assertEqual(errors["packets passed by a rule"], total // 2)
            self.assertEqual(errors["packets dropped by a rule"], total // 2)
            self.assertNotIn("packets passed that no rule matches", errors)
            after = vpp.counts()
            self.assertEqual(after["drops"] - before["drops"], total // 2)
            self.assertGreaterEqual(after["tx"] - before["tx"], total // 2)
            # Enabled and disabled under traffic: all packets go somewhere.
            before = after
            for worker in range(workers or 1):
                vpp.cli(f"packet-generator delete s{worker}")
                vpp.inject(packets, worker if workers else None, f"s{worker}", sent)
            vpp.cli("packet-generator enable-stream")
            for _ in range(10):
                vpp.do("gpu-classify disable pg0", "gpu-classify enable pg0")
            vpp.wait(lambda: vpp.counts()["rx"] - before["rx"] >= total, "every packet has come in")
            vpp.finish()
            after = vpp.counts()
            self.assertGreaterEqual(after["tx"] - before["tx"] + after["drops"] - before["drops"], total)

    def test_one_worker(self):
        self.run_with(1, "cpu")

    def test_two_workers(self):
        self.run_with(2, "cpu")

    def test_one_worker_with_a_device(self):
        self.run_with(1, "emu mode persistent")

    def test_one_worker_with_a_device_in_adaptive_mode(self):
        self.run_with(1, "emu mode adaptive")

    def test_the_main_thread(self):
        self.run_with(None, "emu mode launch")


class DeviceThatDies(unittest.TestCase):
    """In the middle of traffic: every packet goes where the rules say, by the CPU, and the failure can be read."""
    device = "emu:fail-after=700"
    says = r"the device has failed, the worker looks up: .*killed"
    renewal = "the rules are in effect, but device 'emu:fail-after=700' takes them not, so that the CPU looks up"
    counter = "looked up by worker: device failed"

    def run_with(self, workers, mode):
        with forwarding(self, workers) as vpp:
            rules = vpp.folder / "rules"
            rules.write_text("deny udp from any to any\npermit ip from any to any\n")
            vpp.do(f"gpu-classify file {rules}", f"gpu-classify device {self.device} mode {mode}", "gpu-classify enable pg0")
            packets = [named(ip4(TCP(dport=80 + i % 50) if i % 2 else UDP()), str(i)) for i in range(2048)]
            tcp = [i for i in range(2048) if i % 2]
            vpp.cli("clear errors")
            before = vpp.counts()
            worker = None if workers is None else 0
            # Where processors are few the device is late, and gets to its last packet in a later round.
            for rounds in range(1, 101):
                self.assertEqual([int(bytes(p)[-24:]) for p in vpp.send(packets, worker)], tcp, "in their order")
                errors = vpp.errors("sluice-classify-ip4")
                self.assertEqual((errors["packets passed by a rule"], errors["packets dropped by a rule"]), (rounds * 1024, rounds * 1024))
                if self.counter in errors:
                    break
            self.assertIn(self.counter, errors)
            self.assertEqual(vpp.counts()["drops"] - before["drops"], rounds * 1024)
            if self.says:
                self.assertRegex(vpp.cli("show gpu-classify device"), self.says)
                self.assertRegex(vpp.cli("show logging"), self.says)
            # The same rules decide over what follows, and changes of them are done.
            self.assertEqual([int(bytes(p)[-24:]) for p in vpp.send(packets, worker)], tcp)
            rules.write_text("deny tcp from any to any\npermit ip from any to any\n")
            self.assertIn(self.renewal, vpp.cli(f"gpu-classify file {rules}"))
            self.assertEqual([int(bytes(p)[-24:]) for p in vpp.send(packets, worker)], [i for i in range(2048) if i % 2 == 0])
            wrong = vpp.cli(f"gpu-classify file {rules}x")
            self.assertIn(f"{rules}x", wrong)
            # Another device takes its place.
            vpp.do("gpu-classify device emu mode persistent")
            self.assertEqual([int(bytes(p)[-24:]) for p in vpp.send(packets, worker)], [i for i in range(2048) if i % 2 == 0])
            self.assertNotIn("has failed", vpp.cli("show gpu-classify device"))

    def test_persistent(self):
        self.run_with(None, "persistent")

    def test_launch(self):
        self.run_with(None, "launch")

    def test_adaptive(self):
        self.run_with(None, "adaptive")

    def test_with_a_worker(self):
        self.run_with(1, "persistent")


class DeviceThatStops(DeviceThatDies):
    """It says nothing, and answers nothing."""
    device = "emu:stop-after=700"
    says, renewal = None, ""
    counter = "looked up by worker: device late"


class Bridged(unittest.TestCase):
    """Interfaces that are members of a bridge domain, whenever they became that."""

    def check(self, vpp, node):
        rules = vpp.folder / "rules"
        rules.write_text("deny udp from any to any\ndeny tcp from 2001:db8::/32 to any port 80\nmark(7) tcp from any to any port 443\n")
        vpp.do(f"gpu-classify file {rules}")
        vlan = lambda p: Ether(src=HOST, dst=p.dst) / Dot1Q(vlan=9) / p[Ether].payload  # noqa: E731
        packets = {"udp": ip4(UDP()), "udp6": ip6(UDP()), "web": ip4(TCP(dport=80)), "web6": ip6(TCP(dport=80)), "ssh6": ip6(TCP(dport=22)),
                   "tagged-udp": vlan(ip4(UDP())), "tagged-udp6": vlan(ip6(UDP())), "tagged-web": vlan(ip4(TCP(dport=80))),
                   "not-ip": Ether(src=HOST, dst="ff:ff:ff:ff:ff:ff", type=0x88b5), "tls": ip4(TCP(dport=443))}
        want = ["web", "ssh6", "tagged-web", "not-ip", "tls"]
        vpp.cli("clear errors")
        for _ in range(2):
            self.assertEqual(names(vpp.send([named(p, n) for n, p in packets.items()])), sorted(want))
        self.assertEqual(vpp.errors(node)["packets dropped by a rule"], 4)
        # What is not IP is nothing that rules are about, whatever the default is.
        vpp.do("gpu-classify default drop", "gpu-classify mark 7 next error-drop")
        self.assertEqual(names(vpp.send([named(p, n) for n, p in packets.items()])), ["not-ip"])
        vpp.do("gpu-classify default pass", "gpu-classify mark 7 next ip4-lookup")
        self.assertEqual(names(vpp.send([named(p, n) for n, p in packets.items()])), sorted(set(want) - {"tls"}))
        self.assertEqual(vpp.errors(node)["marked, but their node takes others"], 1)
        vpp.do("gpu-classify mark 7 del")

    def bridge(self, vpp):
        vpp.cli("create bridge-domain 1")
        vpp.do("set interface l2 bridge pg0 1", "set interface l2 bridge pg1 1")

    def test_a_member_is_enabled(self):
        for device in ("cpu", "emu mode persistent"):
            with forwarding(self) as vpp:
                self.bridge(vpp)
                vpp.do(f"gpu-classify device {device}", "gpu-classify enable pg0")
                self.check(vpp, "sluice-classify-l2-ip4")
                vpp.do("gpu-classify disable pg0", "gpu-classify enable pg1 output")
                self.check(vpp, "sluice-classify-l2-ip4-output")

    def test_an_interface_becomes_a_member_and_leaves(self):
        with forwarding(self) as vpp:
            vpp.do("gpu-classify enable pg0")
            self.bridge(vpp)
            self.check(vpp, "sluice-classify-l2-ip4")
            vpp.do("set interface l3 pg0", "set interface l3 pg1")
            packets = [named(ip4(UDP()), "udp"), named(ip4(TCP(dport=80)), "web")]
            self.assertEqual(names(vpp.send(packets)), ["web"])
            vpp.do("set interface l2 bridge pg0 1", "set interface l2 bridge pg1 1", "gpu-classify disable pg0")
            self.assertEqual(names(vpp.send(packets)), ["udp", "web"])

    def test_a_cross_connect(self):
        with forwarding(self) as vpp:
            vpp.do("gpu-classify enable pg0", "set interface l2 xconnect pg0 pg1", "set interface l2 xconnect pg1 pg0")
            self.check(vpp, "sluice-classify-l2-ip4")


class Startup(unittest.TestCase):
    def test_a_wrong_configuration_ends_the_start(self):
        for part, says in (("algorithm tuplemerge", "algorithm 'tuplemerge'"), ("algorithm", "'algorithm' has no name"), ("algorithms bitvec", "'algorithms'"),
                           ("algorithm bitvec now", "'now'"), ("algorithm bitvec algorithm tuple_merge", "'algorithm' stands twice"), ("bitvec", "'bitvec'"),
                           ("algorithm ''", "algorithm"), ("algorithm {}", "algorithm")):
            try:
                with vpp_process.Vpp(extra=f"sluice-classify {{ {part} }}"):
                    self.fail(f"VPP runs with {part}")
            except AssertionError as ended:
                self.assertIn("VPP has ended with", str(ended), part)
                self.assertIn(says, str(ended), part)
                self.assertNotIn("SIGSEGV", str(ended), part)

    def test_an_algorithm_is_chosen(self):
        with vpp_process.Vpp(extra="sluice-classify { algorithm bitvec }") as vpp:
            self.assertIn("algorithm bitvec", vpp.cli("show gpu-classify"))


class BinaryApi(unittest.TestCase):
    def test_what_the_commands_do(self):
        with forwarding(self) as vpp:
            api = vpp.api()
            pg0 = next(i.sw_if_index for i in api.sw_interface_dump() if i.interface_name == "pg0")
            self.assertEqual(api.gpu_classify_enable_disable(sw_if_index=pg0, enable=True).retval, 0)
            self.assertNotEqual(api.gpu_classify_enable_disable(sw_if_index=999, enable=True).retval, 0)
            reply = api.gpu_classify_rule_add_del(is_add=True, rule="proto 17 dport 53 action drop")
            self.assertEqual((reply.retval, reply.error), (0, ""))
            reply = api.gpu_classify_rule_add_del(is_add=True, rule="proto 17 dport 99999 action drop")
            self.assertNotEqual(reply.retval, 0)
            self.assertIn("99999", reply.error)
            reply = api.gpu_classify_rule_add_del(is_add=True, rule="proto 17 action drop\nadd proto 6 action drop")
            self.assertNotEqual(reply.retval, 0)
            path = vpp.folder / "list"
            path.write_text("mark(9) udp from any to any port 53\npermit tcp from any to any\ndeny udp from any to any\n")
            reply = api.gpu_classify_file(path=str(path))
            self.assertEqual((reply.retval, reply.error), (0, ""))
            reply = api.gpu_classify_file(path="/nowhere")
            self.assertNotEqual(reply.retval, 0)
            self.assertIn("/nowhere", reply.error)
            self.assertEqual(api.gpu_classify_device(device="emu", mode=1).retval, 0)
            self.assertNotEqual(api.gpu_classify_device(device="tpu", mode=1).retval, 0)
            self.assertEqual(api.gpu_classify_default(drop=True).retval, 0)
            got = vpp.send([named(ip4(UDP(dport=53)), "dns"), named(ip4(TCP()), "tcp"), named(ip4(UDP(dport=1)), "udp"),
                            named(ip4(ICMP()), "icmp")])
            self.assertEqual(names(got), ["dns", "tcp"])
            about = api.gpu_classify_get()
            self.assertEqual((about.rules, about.device, about.drop_unmatched), (3, "emu", True))
            self.assertGreater(about.frames_on_device + about.frames_on_host, 0)
            rules = api.gpu_classify_rule_dump()
            self.assertEqual([(r.position, int(r.action), r.mark, r.packets, r.line) for r in rules],
                             [(1, 3, 9, 1, 1), (2, 1, 0, 1, 2), (3, 2, 0, 1, 3)])
            self.assertTrue(all(r.file == str(path) for r in rules))
            self.assertEqual([(r.position, r.packets) for r in api.gpu_classify_rule_dump(first=2, count=1)], [(2, 1)])
            self.assertEqual([r.position for r in api.gpu_classify_rule_dump(hits=True, match="tcp")], [2])
            self.assertEqual([r.position for r in api.gpu_classify_rule_dump(match=str(path))], [1, 2, 3])
            times = {t.stage: t for t in api.gpu_classify_latency_dump()}
            self.assertEqual(list(times), ["gather keys", "look up", "device", "hand on"])
            self.assertGreater(times["gather keys"].frames, 0)
            self.assertGreaterEqual(times["gather keys"].p999_ns, times["gather keys"].p50_ns)
            self.assertEqual(api.gpu_classify_clear().retval, 0)
            self.assertEqual([r.packets for r in api.gpu_classify_rule_dump()], [0, 0, 0])
            self.assertEqual(sum(t.frames for t in api.gpu_classify_latency_dump()), 0)
            reply = api.gpu_classify_rule_replace(position=3, rule="proto 1 action drop")
            self.assertEqual((reply.retval, reply.error), (0, ""))
            reply = api.gpu_classify_rule_replace(position=7, rule="proto 1 action drop")
            self.assertNotEqual(reply.retval, 0)
            self.assertIn("7", reply.error)
            self.assertNotEqual(api.gpu_classify_rule_replace(position=1, rule="proto 1 action drop\ndelete 1").retval, 0)
            self.assertEqual([r.rule for r in api.gpu_classify_rule_dump(first=3)], ["deny icmp from any to any"])
            reply = api.gpu_classify_mark(mark=9, node="ip4-input")
            self.assertNotEqual(reply.retval, 0)
            self.assertIn("ip4-input", reply.error)
            self.assertEqual(api.gpu_classify_mark_dump(), [])
            self.assertEqual(api.gpu_classify_mark(mark=9, node="error-drop").retval, 0)
            self.assertEqual([(m.mark, m.packets, m.node_ip4, m.node_ip6) for m in api.gpu_classify_mark_dump()], [(9, 15, "error-drop", "error-drop")])
            self.assertEqual(names(vpp.send([named(ip4(UDP(dport=53)), "dns")])), [])


class Sources(unittest.TestCase):
    def test_no_barrier(self):
        folder = pathlib.Path(__file__).resolve().parent.parent
        sources = [p for p in folder.glob("*.[ch]")]
        self.assertGreater(len(sources), 4)
        for path in sources:
            self.assertNotIn("vlib_worker_thread_barrier_sync", path.read_text(), path)


if __name__ == "__main__":
    try:
        vpp_process.find()
        if Ether is None:
            raise vpp_process.Missing("scapy is not installed (python3-scapy)")
    except vpp_process.Missing as missing:
        print(f"skipped: {missing}")
        sys.exit(77)
    unittest.main(verbosity=2)
