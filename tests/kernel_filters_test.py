#!/usr/bin/env python3
"""Imported filters decide as the kernel does.

    kernel_filters_test.py SLUICE [--lists N] [--seconds S] [--seed N] [--kind KIND] [--keep FOLDER]

Draws rule lists in the languages of nft (ip, ip6, inet) and of iptables and ip6tables (legacy and nf_tables), loads each
into a network namespace of its own, and has the kernel forward packets from one TUN device to another: whole ones,
packets that end inside their headers, fragments, packets with IPv6 extension headers. The tools print the list from the
kernel, sluice reads what they print, and both must let the same packets through. EXPLAINED below has the differences
that are meant, each with its reason. The names that the tools print are compared, too.

Needs root (or user namespaces), /dev/net/tun, nft and iptables; without them this ends with 77, which CTest counts as
skipped. Ends after N lists or S seconds, whichever comes first; a list is repeated by --seed (printed) with --lists 1."""
import argparse
import collections
import fcntl
import ipaddress
import json
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time

TCP, UDP, ICMP, ICMP6, SCTP, DCCP, UDPLITE, GRE, ESP, AH = 6, 17, 1, 58, 132, 33, 136, 47, 50, 51
HOP, ROUTING, FRAGMENT, NONE, OPTIONS = 0, 43, 44, 59, 60
EXTENSIONS = {HOP, ROUTING, FRAGMENT, AH, OPTIONS}
HEADER = {TCP: 20, UDP: 8, UDPLITE: 8, SCTP: 12, DCCP: 12}  # fixed L4 headers; ICMP below
PORTS = {TCP: "tcp", UDP: "udp", SCTP: "sctp", DCCP: "dccp", UDPLITE: "udplite"}

# Differences that are meant, by name. Everything else is an error.
EXPLAINED = {}


def explained(name, reason):
    def keep(test):
        EXPLAINED[name] = (reason, test)
        return test
    return keep


# ---- packets --------------------------------------------------------------------------------------------------------


class Packet:
    """One IP packet and what its maker knows of it."""

    def __init__(self):
        self.family = 4
        self.protocol = 0  # of the last header that is reached
        self.l4 = b""
        self.more = False  # fragment, first
        self.offset = 0  # in units of 8 bytes; > 0: a later fragment
        self.fragment = False
        self.after_ah = False
        self.cut_extension = False
        self.bytes = b""

    @property
    def later(self):
        return self.offset > 0

    @property
    def icmp(self):
        return self.protocol == (ICMP if self.family == 4 else ICMP6)

    @property
    def short(self):
        """Ends inside the fixed header of its protocol."""
        need = 8 if self.icmp else HEADER.get(self.protocol, 0)
        return not self.later and len(self.l4) < need

    def __str__(self):
        what = [f"IPv{self.family} protocol {self.protocol}, {len(self.l4)} bytes of it"]
        if self.offset:
            what.append(f"fragment at {self.offset}")
        elif self.fragment:
            what.append("first fragment" if self.more else "atomic fragment")
        if self.after_ah:
            what.append("behind AH")
        if self.cut_extension:
            what.append("cut in an extension header")
        return ", ".join(what) + ": " + self.bytes.hex()


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xffff) + (total >> 16)
    return ~(total + (total >> 16)) & 0xffff


def address(rng, family):
    if family == 4:
        return ipaddress.ip_address((0x0a000000 if rng.random() < 0.9 else 0x0b000000) + rng.randrange(9))
    return ipaddress.ip_address((0x20010db8 if rng.random() < 0.9 else 0x20010db9) << 96 | rng.randrange(9))


PORT_VALUES = [0, 1, 2, 3, 4, 5, 6, 7, 22, 53, 80, 81, 443, 1023, 1024, 65535]
DSCP_VALUES = [0, 1, 8, 10, 46, 63]
ICMP_TYPES = {4: [0, 3, 5, 8, 11, 12, 13, 254, 255], 6: [1, 2, 3, 4, 128, 129, 130, 135, 136, 137, 143]}


def transport(rng, protocol, family):
    if protocol in PORTS:
        ports = struct.pack("!HH", rng.choice(PORT_VALUES), rng.choice(PORT_VALUES))
        if protocol == TCP:
            flags = rng.choice([0, 1, 2, 4, 16, 18, 17, 20, 24, 3, 41, rng.randrange(256)])
            return ports + struct.pack("!IIBBHHH", 1, 2, 0x50, flags, 1000, 0, 0) + bytes(rng.randrange(8))
        if protocol in (UDP, UDPLITE):
            return ports + struct.pack("!HH", 8, 0) + bytes(rng.randrange(8))
        return ports + bytes(8 + rng.randrange(12))
    if protocol in (ICMP, ICMP6):
        return bytes([rng.choice(ICMP_TYPES[4 if protocol == ICMP else 6]), rng.choice([0, 1, 3, 4, 13])]) + bytes(
            6 + rng.randrange(8))
    return bytes(rng.randrange(256) for _ in range(rng.randrange(24)))


def packet(rng, index, families):
    p = Packet()
    p.family = rng.choice(families)
    likely = [TCP] * 6 + [UDP] * 4 + [ICMP if p.family == 4 else ICMP6] * 3 + [SCTP, DCCP, UDPLITE]
    other = [ICMP, ICMP6, GRE, ESP, 94, 2, 135, 139, 255, 143] + ([AH, HOP, OPTIONS] if p.family == 4 else [NONE])
    p.protocol = rng.choice(likely if rng.random() < 0.85 else other)
    l4 = transport(rng, p.protocol, p.family)
    kind = rng.random()
    if kind < 0.12:
        p.fragment = p.more = True
    elif kind < 0.24:
        p.fragment, p.offset, p.more = True, rng.choice([1, 1, 2, 3, 100]), rng.random() < 0.5
    if rng.random() < 0.4:
        l4 = l4[:rng.randrange(min(len(l4), 24) + 1)]
    source, target, dscp = address(rng, p.family), address(rng, p.family), rng.choice(DSCP_VALUES)
    p.l4 = l4
    if p.family == 4:
        options = b"\1\1\1\0" if rng.random() < 0.05 else b""
        size = 20 + len(options)
        head = struct.pack("!BBHHHBBH4s4s", 0x40 | size // 4, dscp << 2 | rng.randrange(4), size + len(l4), index,
                           (0x2000 if p.more else 0) | p.offset, 64, p.protocol, 0, source.packed, target.packed)
        sum_ = checksum(head + options)
        p.bytes = head[:10] + struct.pack("!H", sum_) + head[12:] + options + l4
    else:
        chain = []  # of (number, bytes but the first)
        if rng.random() < 0.1:
            chain.append(HOP)
        extensions = [OPTIONS, AH, AH, ROUTING]
        while rng.random() < 0.25:
            chain.append(rng.choice(extensions))
        if p.fragment or rng.random() < 0.03:
            p.fragment = True
            chain.append(FRAGMENT)
            while not p.offset and rng.random() < 0.2:
                chain.append(rng.choice(extensions))
            if p.offset and rng.random() < 0.1:
                p.protocol = rng.choice([OPTIONS, AH])  # a header that is in another fragment
        p.after_ah = AH in chain
        body, following = b"", chain[1:] + [p.protocol]
        for number, after in zip(chain, following):
            if number == FRAGMENT:
                body += struct.pack("!BBHI", after, 0, p.offset << 3 | p.more, index)
            elif number == AH:
                words = rng.choice([4, 4, 2, 6])
                body += bytes([after, words - 2]) + bytes(words * 4 - 2)
            elif number == ROUTING:
                body += bytes([after, 0, 4, 0]) + bytes(4)
            else:
                body += bytes([after, 0, 1, 4]) + bytes(4)  # PadN
        if body and not p.offset and rng.random() < 0.02:
            body, l4 = body[:rng.randrange(len(body))], b""
            p.cut_extension = True
        first = chain[0] if chain else p.protocol
        p.bytes = struct.pack("!IHBB", 6 << 28 | dscp << 22 | index, len(body) + len(l4), first, 64)
        p.bytes += source.packed + target.packed + body + l4
    if rng.random() < 0.1:
        p.bytes += bytes([0xff]) * rng.randrange(1, 30)  # padding of the link
    return p


def write_capture(path, packets):
    with open(path, "wb") as f:
        f.write(struct.pack("<IHHiIII", 0xa1b2c3d4, 2, 4, 0, 0, 65535, 101))
        for i, p in enumerate(packets):
            f.write(struct.pack("<IIII", i, 0, len(p.bytes), len(p.bytes)) + p.bytes)


# ---- the kernel -----------------------------------------------------------------------------------------------------


def tool(*words, text=None):
    return subprocess.run(words, input=text, capture_output=True, text=True, timeout=600)


def need(*words, text=None):
    done = tool(*words, text=text)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr}{text or ''}")
    return done.stdout


class Kernel:
    """Forwards between two TUN devices of this process's namespace."""

    def __init__(self):
        self.fds = [self.open(name) for name in ("in0", "out0")]
        for name in ("lo", "in0", "out0"):
            need("ip", "link", "set", name, "up")
        for name in ("in0", "out0"):
            need("ip", "link", "set", name, "txqueuelen", "4000", "mtu", "65000")
        need("ip", "address", "add", "192.0.2.1/32", "dev", "in0")
        need("ip", "-6", "address", "add", "2001:db8:ffff::1/128", "dev", "in0", "nodad")
        need("ip", "route", "add", "default", "dev", "out0")
        need("ip", "-6", "route", "add", "default", "dev", "out0")
        for name, value in {"ipv4/ip_forward": 1, "ipv6/conf/all/forwarding": 1, "ipv4/conf/all/rp_filter": 0,
                            "ipv4/conf/in0/rp_filter": 0, "ipv4/conf/default/rp_filter": 0}.items():
            (pathlib.Path("/proc/sys/net") / name).write_text(str(value))

    @staticmethod
    def open(name):
        fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(fd, 0x400454ca, struct.pack("16sH22x", name.encode(), 0x1001))  # TUNSETIFF: IFF_TUN, IFF_NO_PI
        return fd

    @staticmethod
    def read(fd):
        found = []
        while True:
            try:
                found.append(os.read(fd, 65536))
            except BlockingIOError:
                return found

    def passed(self, packets):
        """The positions of the packets that come out."""
        for fd in self.fds:
            self.read(fd)
        out = set()
        for i, p in enumerate(packets):
            os.write(self.fds[0], p.bytes)
            if i % 256 == 255 or i + 1 == len(packets):
                for frame in self.read(self.fds[1]):
                    four = frame[0] >> 4 == 4
                    number = struct.unpack_from("!H", frame, 4)[0] if four else struct.unpack_from("!I", frame)[0] & 0xfffff
                    source = slice(12, 16) if four else slice(8, 24)
                    # Not what the kernel sends by itself, to reject.
                    if number < len(packets) and packets[number].bytes[source] == frame[source]:
                        out.add(number)
                self.read(self.fds[0])
        return out


# ---- lists of nft ---------------------------------------------------------------------------------------------------


def prefix(rng, family):
    a = int(address(rng, family))
    width = 32 if family == 4 else 128
    length = rng.choice([width, width, width - 1, width - 2, width - 3, 8])
    return ipaddress.ip_network((a >> (width - length) << (width - length), length))


def address_range(rng, family):
    low, high = sorted([int(address(rng, family)), int(address(rng, family))])
    if high - low > 16:
        high = low + rng.randrange(16)
    return f"{ipaddress.ip_address(low)}-{ipaddress.ip_address(high)}"


def port_item(rng, mark="-"):
    low = rng.choice(PORT_VALUES)
    return str(low) if rng.random() < 0.6 else f"{low}{mark}{min(65535, low + rng.randrange(1, 6))}"


def disjoint(items):
    """Of items like 3, 3-5, 10.0.0.0/30 those that do not overlap earlier ones."""
    taken, kept = [], []
    for item in items:
        if "/" in item:
            network = ipaddress.ip_network(item)
            low, high = int(network[0]), int(network[-1])
        else:
            ends = item.split("-")
            values = [int(e) if e.isdigit() else int(ipaddress.ip_address(e)) for e in (ends[0], ends[-1])]
            low, high = values
        if all(high < a or low > b for a, b in taken):
            taken.append((low, high))
            kept.append(item)
    return kept


class NftList:
    """One ruleset as text for nft -f."""

    def __init__(self, rng, table_family):
        self.rng, self.table_family = rng, table_family
        self.sets = []  # declarations
        self.text = self.draw()

    def chance(self, share):
        return self.rng.random() < share

    def many(self, make, low=1, high=4):
        return disjoint([make() for _ in range(self.rng.randint(low, high))])

    def named(self, type_, items, more=""):
        name = f"s{len(self.sets)}"
        interval = "flags interval; " if any("-" in i or "/" in i for i in items) else ""
        self.sets.append(f"  set {name} {{ type {type_}; {interval}{more}elements = {{ {', '.join(items)} }} }}")
        return "@" + name

    def value(self, make, type_, catch_all=True):
        """The right side of a match: a value, a set, a named set."""
        dice = self.rng.random()
        if dice < 0.55:
            return make()
        items = self.many(make)
        if catch_all and self.chance(0.08):
            items.append("*")
        return self.named(type_, items) if dice > 0.8 or "*" in items else "{ " + ", ".join(items) + " }"

    def negate(self, share=0.25):
        return "!= " if self.chance(share) else ""

    def addresses(self, family):
        name = "ip" if family == 4 else "ip6"
        make = lambda: str(prefix(self.rng, family)) if self.chance(0.6) else (
            address_range(self.rng, family) if self.chance(0.4) else str(address(self.rng, family)))
        side = self.rng.choice(["saddr", "daddr"])
        if self.chance(0.05):
            return f"{name} {side} {self.rng.choice(['<', '>', '<=', '>='])} {address(self.rng, family)}"
        return f"{name} {side} {self.negate()}{self.value(make, 'ipv4_addr' if family == 4 else 'ipv6_addr')}"

    def ports(self, protocol, negate=None):
        negate = self.negate() if negate is None else negate
        side = self.rng.choice(["sport", "dport"])
        if self.chance(0.1):
            return f"{protocol} {side} {self.rng.choice(['<', '>', '<=', '>='])} {self.rng.choice([3, 5, 80, 1024])}"
        return f"{protocol} {side} {negate}{self.value(lambda: port_item(self.rng), 'inet_service')}"

    def flags(self):
        names = ["fin", "syn", "rst", "psh", "ack", "urg", "ecn", "cwr"]
        some = lambda low=1, high=3: self.rng.sample(names[:6], self.rng.randint(low, high))
        mask = some(2, 4)
        value = [f for f in mask if self.chance(0.5)]
        return "tcp flags " + self.rng.choice([
            self.negate() + ",".join(some(1, 1)),
            ",".join(some()),
            "! " + ",".join(some()),
            "== " + self.rng.choice(names),
            f"& ({'|'.join(mask)}) {self.rng.choice(['==', '!='])} {'|'.join(value) or '0'}",
            "{ " + ", ".join(some()) + " }",
        ])

    def icmp(self, family):
        name = "icmp" if family == 4 else "icmpv6"
        types = ICMP_TYPES[family]
        dice = self.rng.random()
        type_value = lambda: str(self.rng.choice(types)) if self.chance(0.7) else (
            lambda t: f"{t}-{min(255, t + 3)}")(self.rng.choice(types))
        code_value = lambda: self.rng.choice(["0", "1", "3", "4", "13", "0-3"])
        if dice < 0.2:
            keys = disjoint([str(self.rng.choice(types)) for _ in range(2)])
            return f"{name} type . {name} code {self.negate(0.1)}{{ " + ", ".join(
                f"{k} . {self.rng.choice([0, 1, 3])}" for k in keys) + " }"
        text = ""
        if dice < 0.8:
            text = f"{name} type {self.negate()}" + self.value(type_value, f"{name}_type")
        if dice > 0.5:
            negate = "" if "!=" in text else self.negate()  # nft 1.0.6 makes one comparison of both
            text += f" {name} code {negate}" + self.value(code_value, f"{name}_code")
        return text.strip()

    def protocol_value(self):
        return str(self.rng.choice([TCP, UDP, ICMP, ICMP6, SCTP, DCCP, UDPLITE, GRE, ESP, AH, 94, 0, 59, 60, 135, 41]))

    def concatenation(self, family, verdicts=None):
        """A match of several fields at once, or a verdict map of them."""
        rng = self.rng
        ip, kind = ("ip", "ipv4_addr") if family == 4 else ("ip6", "ipv6_addr")
        host = lambda: str(address(rng, family)) if self.chance(0.5) else str(prefix(rng, family))
        proto = lambda: rng.choice(["tcp", "udp", "sctp", "dccp", "udplite"])
        port = lambda: port_item(rng)
        one_port = lambda: str(rng.choice(PORT_VALUES))
        l4 = rng.choice(["tcp", "udp", "sctp"])
        # The key, the type of its set, and its parts: exact ones for sets without intervals.
        forms = [
            ("meta l4proto . th dport", "inet_proto . inet_service", [proto, port]),
            ("meta l4proto . th dport", "inet_proto . inet_service", [proto, one_port]),
            ("meta l4proto . th sport", "inet_proto . inet_service", [proto, port]),
        ]
        if family:
            forms += [
                (f"{ip} saddr . {l4} dport", f"{kind} . inet_service", [host, port]),
                (f"{ip} daddr . meta l4proto . th dport", f"{kind} . inet_proto . inet_service", [host, proto, port]),
                (f"{ip} saddr . {ip} daddr", f"{kind} . {kind}", [host, host]),
                (f"{l4} sport . {l4} dport", "inet_service . inet_service", [port, port]),
            ]
        key, type_, makers = rng.choice(forms)
        # Members must not overlap: the first field differs, or there is one member.
        members, seen = [], []
        for _ in range(rng.randint(1, 3)):
            parts = [make() for make in makers]
            if not members or (parts[0] not in seen and not any("/" in x or "-" in x for x in (*parts, *seen))):
                members.append(" . ".join(parts))
                seen += parts
        loose = "th" in key.split()
        interval = any("-" in m or "/" in m for m in members)
        if verdicts:
            catch_all = ", * : " + rng.choice(verdicts) if self.chance(0.3) and not loose else ""
            return f"{key} vmap {{ " + ", ".join(f"{m} : {rng.choice(verdicts)}" for m in members) + catch_all + " }"
        negated = "" if loose else self.negate()
        if self.chance(0.3):
            return f"{key} {negated}" + self.named(type_, members, "flags interval; " if interval and not any(
                "-" in m or "/" in m for m in members) else "")
        return f"{key} {negated}{{ {', '.join(members)} }}"

    def conditions(self):
        rng = self.rng
        family = {"ip": 4, "ip6": 6}.get(self.table_family) or rng.choice([0, 0, 4, 6])
        parts = []
        if family:
            for _ in range(rng.choice([0, 0, 1, 1, 2])):
                parts.append(self.addresses(family))
            if self.chance(0.12):
                make = lambda: str(rng.choice(DSCP_VALUES))
                # nft 1.0.6 has the kernel look up a wrong number for ip6 dscp in a named set.
                value = self.value(make, "dscp") if family == 4 else "{ " + ", ".join(self.many(make)) + " }"
                parts.append(f"{'ip' if family == 4 else 'ip6'} dscp {self.negate()}{value}")
        of_family = not family and self.chance(0.1)
        if of_family:
            parts.append(rng.choice(["meta nfproto ipv4", "meta nfproto != ipv4", "meta protocol ip6",
                                     "meta nfproto { ipv4, ipv6 }"]))
        if family == 4 and self.chance(0.1):
            parts.append(f"ip frag-off & {rng.choice(['0x1fff', '0x3fff'])} {rng.choice(['==', '!='])} 0")
        dice = rng.random()
        if dice < 0.3:
            protocol = rng.choice(["tcp", "tcp", "tcp", "udp", "udp", "sctp", "dccp", "udplite"])
            for _ in range(rng.choice([1, 1, 2])):
                # Of two adjacent fields after "!=" nft 1.0.6 makes one comparison, which lists as two.
                negate = "" if parts and "port !=" in parts[-1] else None
                parts.append(self.flags() if protocol == "tcp" and self.chance(0.35) else self.ports(protocol, negate))
        elif dice < 0.45:
            parts.append(self.icmp(family or rng.choice([4, 6])))
        elif dice < 0.6 and not of_family:  # nft 1.0.6 lists meta nfproto ipv4 meta l4proto icmp without the former
            key = "ip protocol" if family == 4 and self.chance(0.4) else "meta l4proto"
            parts.append(f"{key} {self.negate()}{self.value(self.protocol_value, 'inet_proto')}")
        elif dice < 0.68:
            parts.append("meta l4proto { tcp, udp } " + self.ports("th") if self.chance(0.7) else
                         "meta l4proto sctp " + self.ports("th"))
        elif dice < 0.8:
            parts.append(self.concatenation(family))
        rng.shuffle(parts) if dice >= 0.8 else None
        return parts, family

    def rule(self, chain, chains):
        rng = self.rng
        later = [c for c in chains if c > chain]
        verdicts = ["accept", "accept", "drop", "drop", "return"]
        jumps = [f"{how} c{c}" for c in later for how in ("jump", "jump", "goto")]
        parts, family = self.conditions()
        if self.chance(0.2):
            parts.append(rng.choice(["counter", "log", "meta mark set 5", 'log prefix "x"', "counter"]))
        if self.chance(0.12):
            used = " ".join(parts)
            pool = verdicts + jumps
            if not re.search(r"tcp|udp|sctp|dccp|icmp|l4proto|protocol|\bth\b", used):
                return " ".join(parts + [self.verdict_map(family, pool)])
        if self.chance(0.08):
            return " ".join(parts)
        pool = verdicts + jumps * self.chance(0.5) + ["reject"] * self.chance(0.05)
        return " ".join(parts + [rng.choice(pool)])

    def verdict_map(self, family, pool):
        rng = self.rng
        dice = rng.random()
        if dice < 0.4:
            return self.concatenation(family, pool)
        if dice < 0.7:
            key, make = rng.choice(["tcp dport", "udp sport", "tcp sport"]), lambda: port_item(rng)
        elif dice < 0.85 or not family:
            key, make = "meta l4proto", self.protocol_value
        else:
            key, make = ("ip" if family == 4 else "ip6") + " saddr", lambda: str(prefix(rng, family))
        items = self.many(make) + ["*"] * self.chance(0.3)
        return f"{key} vmap {{ " + ", ".join(f"{i} : {rng.choice(pool)}" for i in items) + " }"

    def draw(self):
        rng = self.rng
        count = rng.randint(1, 4)
        bodies = []
        hooks = [("forward", rng.choice([0, 0, -10, 10]))]
        while self.chance(0.25):
            hooks.append((rng.choice(["prerouting", "forward", "postrouting"]), rng.choice([-300, -5, 5, 100])))
        policies = []
        for k, (hook, priority) in enumerate(hooks):
            policy = rng.choice(["accept", "drop"]) if k == 0 or self.chance(0.2) else "accept"
            policies.append(f"  chain base{k} {{ type filter hook {hook} priority {priority}; policy {policy};\n")
        for c in range(1, count):
            bodies.append(f"  chain c{c} {{\n" + "".join(
                f"    {self.rule(c, range(1, count))}\n" for _ in range(rng.randint(1, 4))) + "  }\n")
        for k, opening in enumerate(policies):
            rules = rng.randint(1, 7) if k == 0 else rng.randint(0, 3)
            bodies.append(opening + "".join(f"    {self.rule(0, range(1, count))}\n" for _ in range(rules)) + "  }\n")
        declared = "".join(f"  chain c{c} {{ }}\n" for c in range(1, count))
        text = f"table {self.table_family} fw {{\n{declared}" + "\n".join(self.sets) + "\n" + "".join(bodies) + "}\n"
        if self.chance(0.08):
            other = rng.choice(["ip", "ip6", "inet"])
            hook = rng.choice(["prerouting", "forward", "postrouting"])
            text += f"table {other} rest {{ chain only {{ type filter hook {hook} priority 7; policy drop;\n}}\n}}\n"
        return text


# ---- lists of iptables ----------------------------------------------------------------------------------------------


class IptablesList:
    def __init__(self, rng, family, nf_tables):
        self.rng, self.family, self.nf_tables = rng, family, nf_tables
        self.text = self.draw()

    def chance(self, share):
        return self.rng.random() < share

    def no(self, share=0.2):
        return "! " if self.chance(share) else ""

    def rule(self, chain, chains):
        rng, family = self.rng, self.family
        text = ""
        for side in ("-s", "-d"):
            if self.chance(0.3):
                text += f" {self.no()}{side} {prefix(rng, family)}"
        if self.chance(0.05):
            text += f" -m iprange {self.no()}--{rng.choice(['src', 'dst'])}-range {address_range(rng, family)}"
        if self.chance(0.08):
            text += f" -m dscp {self.no()}--dscp {rng.choice(DSCP_VALUES)}"
        if self.chance(0.04):
            text += f" -m tos {self.no()}--tos {rng.choice(DSCP_VALUES) << 2:#x}/0xfc"
        if family == 4 and self.chance(0.08):
            text += f" {self.no()}-f"
        dice = rng.random()
        if dice < 0.45:
            protocol = rng.choice(["tcp", "tcp", "tcp", "udp", "udp", "sctp", "dccp"])
            text += f" -p {protocol}"
            if self.chance(0.15):
                pass
            elif protocol == "tcp" and self.chance(0.4):
                names = ["FIN", "SYN", "RST", "PSH", "ACK", "URG"]
                mask = rng.sample(names, rng.randint(1, 5))
                value = [m for m in mask if self.chance(0.5)]
                text += f" -m tcp {self.no()}" + rng.choice(
                    ["--syn", f"--tcp-flags {','.join(mask)} {','.join(value) or 'NONE'}"])
            else:
                text += f" -m {protocol} {self.no()}--{rng.choice(['sport', 'dport'])} {port_item(rng, ':')}"
                # iptables-nft 1.8.9 makes one comparison of both ports, which is wrong after '!'.
                if self.chance(0.2) and not (self.nf_tables and "! --" in text):
                    text += f" {'' if self.nf_tables else self.no()}--{'sport' if '--dport' in text else 'dport'} "
                    text += port_item(rng, ":")
        elif dice < 0.58:
            items = ",".join(port_item(rng, ":") for _ in range(rng.randint(1, 4)))
            text += f" -p {rng.choice(['tcp', 'udp', 'udplite', 'sctp', 'dccp'])} -m multiport"
            text += f" {self.no()}--{rng.choice(['sports', 'dports', 'ports'])} {items}"
        elif dice < 0.72:
            what = str(rng.choice(ICMP_TYPES[family])) + (f"/{rng.choice([0, 1, 3, 4])}" if self.chance(0.4) else "")
            if family == 4:
                text += f" -p icmp -m icmp {self.no()}--icmp-type {what if self.chance(0.9) else 'any'}"
            else:
                text += f" -p ipv6-icmp -m icmp6 {self.no()}--icmpv6-type {what}"
        elif dice < 0.9:
            text += f" {self.no()}-p {rng.choice([TCP, UDP, ICMP, ICMP6, GRE, ESP, AH, 94, 2, SCTP, 59, 60, 135, 143])}"
        later = [c for c in chains if c > chain]
        targets = ["-j ACCEPT"] * 4 + ["-j DROP"] * 4 + ["-j RETURN"] * 2
        targets += ["", "-j MARK --set-mark 7", "-j LOG", "-j REJECT"]
        for c in later:
            targets += [f"-j c{c}"] * 2 + [f"-g c{c}"]
        return f"{text} {rng.choice(targets)}"

    def draw(self):
        rng = self.rng
        count = rng.randint(1, 4)
        policy = rng.choice(["ACCEPT", "DROP"])
        lines = ["*filter", ":INPUT ACCEPT [0:0]", f":FORWARD {policy} [0:0]", ":OUTPUT ACCEPT [0:0]"]
        lines += [f":c{c} - [0:0]" for c in range(1, count)]
        for c in range(count):
            for _ in range(rng.randint(1, 7 if c == 0 else 4)):
                lines.append(f"-A {f'c{c}' if c else 'FORWARD'}{self.rule(c, range(1, count))}")
        return "\n".join(lines + ["COMMIT", ""])


# ---- the comparison -------------------------------------------------------------------------------------------------

EMPTY = "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n"
KINDS = {"nft ip": 4, "nft ip6": 6, "nft inet": 0, "iptables-legacy": 4, "ip6tables-legacy": 6, "iptables-nft": 4,
         "ip6tables-nft": 6}


class Sweep:
    def __init__(self, sluice, folder):
        self.sluice, self.folder = sluice, pathlib.Path(folder)
        self.kernel = Kernel()
        self.pools = {}
        self.counts = collections.Counter()
        self.seen = collections.Counter()
        self.examples = {}
        self.failures = []
        self.loaded = None

    def verdicts(self, rules, capture):
        """Of sluice, by position: the words behind the number; or what it said instead."""
        out = self.folder / "v.txt"
        done = tool(self.sluice, "run", "--quiet", "--acl", str(rules), "--in", str(capture), "--verdicts", str(out))
        if done.returncode != 0:
            return None, done.stderr
        rows = {}
        for line in out.read_text().splitlines():
            if not line.startswith("#"):
                words = line.split("\t")
                rows[int(words[0]) - 1] = words[1:]
        return rows, ""

    def pool(self, family, number, seed, size):
        key = (family, number)
        if key not in self.pools:
            self.pools = {k: v for k, v in self.pools.items() if k[0] != family}
            rng = random.Random(seed * 7919 + family)
            packets = [packet(rng, i, [family] if family else [4, 6]) for i in range(size)]
            capture = self.folder / f"pool{family}.pcap"
            write_capture(capture, packets)
            self.unload()
            through = self.kernel.passed(packets)
            everything = self.folder / "all.acl"
            everything.write_text("permit from any to any\n")
            rows, said = self.verdicts(everything, capture)
            if rows is None:
                raise RuntimeError(said)
            self.pools[key] = (packets, capture, through, {i for i, w in rows.items() if w[0] == "permit"})
        return self.pools[key]

    def unload(self):
        if self.loaded is None:
            return
        need("nft", "flush", "ruleset")
        if self.loaded.endswith("-legacy"):
            need(f"{self.loaded}-restore", text=EMPTY)
        self.loaded = None

    def load(self, kind, text):
        """What the tool prints of the list, or none where the kernel refuses it."""
        if self.loaded and self.loaded != kind and not (self.loaded.startswith("nft") and kind.startswith("nft")):
            self.unload()
        if kind.startswith("nft"):
            done = tool("nft", "-f", "-", text="flush ruleset\n" + text)
            self.loaded = kind
            return (need("nft", "-j", "list", "ruleset"), "") if done.returncode == 0 else (None, done.stderr)
        done = tool(f"{kind}-restore", text=text)
        self.loaded = kind
        return (need(f"{kind}-save"), "") if done.returncode == 0 else (None, done.stderr)

    def one(self, seed, kinds, packets):
        rng = random.Random(seed)
        kind = rng.choice(kinds)
        family = KINDS[kind]
        drawn = NftList(rng, kind.split()[1]) if kind.startswith("nft") else IptablesList(rng, family, kind.endswith("-nft"))
        text = drawn.text
        pool, capture, through, whole = self.pool(family, seed // 25, seed // 25, packets)
        printed, refused = self.load(kind, text)
        if printed is None:
            self.counts["lists that the kernel refuses"] += 1
            self.examples.setdefault("lists that the kernel refuses", f"{refused}\n{text}")
            return
        passed = self.kernel.passed(pool)
        rules = self.folder / "rules"
        rules.write_text(printed)
        rows, said = self.verdicts(rules, capture)
        self.counts[f"lists of {kind}"] += 1
        if rows is None:
            if re.search(r"make more than \d+ (rules|regions)|take more (than \d+ )?steps", said):
                self.counts["lists that are too large, written out"] += 1
            else:
                self.fail(seed, kind, text, printed, f"sluice refuses the list:\n{said}")
            return
        for i, p in enumerate(pool):
            if i not in through:
                self.counts["packets that the kernel does not forward with any list"] += 1
                continue
            kernel, ours = i in passed, rows.get(i, ["none"])[0] in ("permit", "mark")
            self.counts["packets compared"] += 1
            self.counts["packets that pass"] += kernel
            if kernel == ours:
                continue
            for name, (_, test) in EXPLAINED.items():
                if test(p, kind, text, kernel, i in whole):
                    self.seen[name] += 1
                    break
            else:
                self.fail(seed, kind, text, printed, f"packet {i + 1}: the kernel {'passes' if kernel else 'drops'} it, "
                          f"sluice says {rows.get(i)}\n{p}")
                return

    def fail(self, seed, kind, text, printed, what):
        self.failures.append(f"---- seed {seed}, {kind}: {what}\n{text}")
        if self.keep:
            (self.keep / f"{seed}.rules").write_text(printed)
            (self.keep / f"{seed}.txt").write_text(f"{what}\n{text}")

    keep = None


@explained("checked by sluice itself", "a list drops what is no valid packet and fragments that hide or replace a header "
           "(RFC 1858, RFC 3128, RFC 7112), whatever the rules say; the kernel forwards them")
def _(p, kind, text, kernel, whole):
    tiny = p.fragment and (p.short or (p.protocol == TCP and p.offset == 1))
    return kernel and not whole and (p.cut_extension or tiny)


@explained("iptables, truncated header", "netfilter drops a packet whose header is cut when a rule looks at the header; "
           "sluice drops it before the first such rule of the list, also where that rule's addresses differ")
def _(p, kind, text, kernel, whole):
    return "tables" in kind and kernel and p.short


@explained("nft, later fragment", "nf_tables takes the first bytes of a later fragment, in IPv6 those of the IPv6 header, for a "
           "transport header; to sluice there is none. Such fragments are useless without the first one, which both judge "
           "alike; with connection tracking the kernel sees no fragments")
def _(p, kind, text, kernel, whole):
    return p.later and "legacy" not in kind and re.search(r"[sd]port|flags|--syn|icmp(v6)? (type|code)|--icmp", text)


@explained("nft, 2 or 3 bytes of ports", "a source port that is there without the destination port; to sluice there are no "
           "ports, and no protocol has a header of so few bytes")
def _(p, kind, text, kernel, whole):
    return "legacy" not in kind and p.protocol in PORTS and p.short and len(p.l4) in (2, 3) and "sport" in text


@explained("later fragment of extension headers", "IPv6: in a later fragment that begins with an extension header the kernel "
           "knows no protocol, and sluice takes the extension header for it. Without the first fragment it is useless")
def _(p, kind, text, kernel, whole):
    return p.family == 6 and p.later and p.protocol in EXTENSIONS


def names_of_tools(sluice, folder):
    """How many names the tools print or take, and for which of them sluice reads something else than their number."""
    problems, count = [], 0
    folder = pathlib.Path(folder)

    def positions(rules, packets):
        """The position of the first rule that matches each packet; none where the list is refused."""
        write_capture(folder / "names.pcap", packets)
        (folder / "names").write_text(rules)
        done = tool(sluice, "run", "--quiet", "--acl", str(folder / "names"), "--in", str(folder / "names.pcap"),
                    "--verdicts", str(folder / "names.txt"))
        if done.returncode != 0:
            problems.append(done.stderr)
            return None
        rows = (folder / "names.txt").read_text().splitlines()
        return [int(row.split("\t")[3]) for row in rows if not row.startswith("#")]

    def compare(what, names, rules_of, packet_of):
        """A list with the names and one with their numbers do the same to a packet of each value."""
        nonlocal count
        count += len(names)
        values = sorted({value for _, value in names})
        packets = [packet_of(*(value if isinstance(value, tuple) else (value,))) for value in values]
        by_name = positions(rules_of([n for n, _ in names]), packets)
        by_number = positions(rules_of([v for _, v in names]), packets)
        for value, one, other in zip(values, by_name or [], by_number or []):
            if one != other or one == 0:
                problems.append(f"{what} {[n for n, v in names if v == value]}: not {value}")

    def ip(family, protocol, l4, dscp=0):
        p = Packet()
        if family == 4:
            head = struct.pack("!BBHHHBBH4s4s", 0x45, dscp << 2, 20 + len(l4), 0, 0, 64, protocol, 0,
                               bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2]))
            p.bytes = head[:10] + struct.pack("!H", checksum(head)) + head[12:] + l4
        else:
            host = ipaddress.ip_address("2001:db8::1").packed
            p.bytes = struct.pack("!IHBB", 6 << 28 | dscp << 22, len(l4), protocol, 64) + host + host + l4
        return p

    def nft(family, left):
        def rules_of(values):
            rules = [{"chain": {"family": family, "table": "t", "name": "f", "type": "filter", "hook": "forward", "prio": 0,
                                "policy": "drop"}}]
            rules += [{"rule": {"family": family, "table": "t", "chain": "f", "expr": [
                {"match": {"op": "==", "left": left, "right": value}}, {"accept": None}]}} for value in values]
            return json.dumps({"nftables": rules})
        return rules_of

    def described(*words):
        pairs = re.findall(r"^\t(\S+)\s+(\S+)$", need("nft", "describe", *words), re.M)
        return [(name, int(value, 16 if value.startswith("0x") else 10)) for name, value in pairs]

    payload = lambda protocol, field: {"payload": {"protocol": protocol, "field": field}}
    for family, bits, protocol, number in (("ip", 4, "icmp", ICMP), ("ip6", 6, "icmpv6", ICMP6)):
        compare(f"{protocol} type", described(protocol, "type"), nft(family, payload(protocol, "type")),
                lambda v: ip(bits, number, bytes([v, 200]) + bytes(6)))
        compare(f"{protocol} code", described(protocol, "code"), nft(family, payload(protocol, "code")),
                lambda v: ip(bits, number, bytes([200, v]) + bytes(6)))
        compare(f"{family} dscp", described(family, "dscp"), nft(family, payload(family, "dscp")),
                lambda v: ip(bits, UDP, bytes(8), v))
    for left in (payload("ip", "protocol"), {"meta": {"key": "l4proto"}}):
        compare(f"{left}", described("ip", "protocol"), nft("ip", left), lambda v: ip(4, v, bytes(40)))
    head = "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD DROP [0:0]\n:OUTPUT ACCEPT [0:0]\n"
    protocols = []  # of this machine, with their other names
    for line in open("/etc/protocols") if os.path.exists("/etc/protocols") else []:
        words = line.split("#")[0].split()
        if len(words) >= 2 and 0 < int(words[1]) < 256:
            protocols += [(name, int(words[1])) for name in (words[0], *words[2:])]
    compare("-p", protocols, lambda values: "# Generated by iptables-save\n" + head + "".join(
        f"-A FORWARD -p {v} -j ACCEPT\n" for v in values) + "COMMIT\n", lambda v: ip(4, v, bytes(40)))
    for program, module, protocol, number, bits in (("iptables", "icmp", "icmp", ICMP, 4),
                                                    ("ip6tables", "icmp6", "ipv6-icmp", ICMP6, 6)):
        option = "icmp-type" if bits == 4 else "icmpv6-type"
        said = need(f"{program}-legacy", "-m", module, "--help")
        words = [w.strip("()") for line in said[said.index("Valid ICMP"):].splitlines()[1:] for w in line.split() if w != "any"]

        def rules_of(values):
            values = ["/".join(v) if isinstance(v, tuple) and v[1] else v[0] if isinstance(v, tuple) else v for v in values]
            return f"# Generated by {program}-save\n" + head + "".join(
                f"-A FORWARD -p {protocol} -m {module} --{option} {v} -j ACCEPT\n" for v in values) + "COMMIT\n"

        need(f"{program}-legacy-restore", text=rules_of(words))
        printed = re.findall(rf"--{option} (\d+)(?:/(\d+))?", need(f"{program}-legacy-save"))
        need(f"{program}-legacy-restore", text=EMPTY)
        if len(printed) != len(words):
            problems.append(f"{program}: {len(words)} names and {len(printed)} rules")
            continue
        # Codes before whole types, which match them too.
        compare(f"--{option}", sorted(zip(words, printed), key=lambda pair: pair[1][1] == ""), rules_of,
                lambda t, c: ip(bits, number, bytes([int(t), int(c or 99)]) + bytes(6)))
    return count, problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sluice", type=lambda p: str(pathlib.Path(p).resolve()))
    parser.add_argument("--lists", type=int, default=150)
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--packets", type=int, default=400, help="per list")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", choices=sorted(KINDS), action="append", help="only lists of this kind")
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for the lists that differ")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.inside:
        tools = ["nft", "ip", "unshare"] + [f"{program}-{way}{verb}" for program in ("iptables", "ip6tables")
                                            for way in ("legacy", "nft") for verb in ("", "-save", "-restore")]
        missing = [t for t in tools if not shutil.which(t)]
        enter = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-rn"]
        if missing or not os.path.exists("/dev/net/tun"):
            print(f"skipped: not here: {', '.join(missing or ['/dev/net/tun'])}")
            return 77
        probe = "nft add table inet t && ip tuntap add dev t mode tun && iptables-legacy-restore && ip6tables-nft-save"
        if tool(*enter, "sh", "-c", probe, text=EMPTY).returncode != 0:
            print("skipped: no network namespace with TUN devices, nft and iptables here (root)")
            return 77
        return subprocess.run([*enter, sys.executable, __file__, *sys.argv[1:], "--inside"]).returncode
    with tempfile.TemporaryDirectory(prefix="sluice_filters") as folder:
        count, problems = names_of_tools(options.sluice, folder)
        print(f"{count} names of the tools")
        sweep = Sweep(options.sluice, folder)
        if options.keep:
            options.keep.mkdir(parents=True, exist_ok=True)
            sweep.keep = options.keep
        end = time.monotonic() + options.seconds
        for seed in range(options.seed, options.seed + options.lists):
            if time.monotonic() > end or len(sweep.failures) >= 10:
                break
            sweep.one(seed, options.kind or sorted(KINDS), options.packets)
        sweep.unload()
    for name, number in sorted(sweep.counts.items()):
        print(f"{number:8} {name}")
    for name, number in sorted(sweep.seen.items()):
        print(f"{number:8} differ, explained: {name}: {EXPLAINED[name][0]}")
    for problem in problems + sweep.failures:
        print(problem)
    lists = sum(number for name, number in sweep.counts.items() if name.startswith("lists"))
    # Another kernel may lack a match; what becomes too large is rare.
    for name, share in (("lists that the kernel refuses", 2), ("lists that are too large, written out", 20)):
        if sweep.counts[name] * share > max(lists, 100):
            print(f"too many {name}", sweep.examples.get(name, ""))
            return 1
    return 1 if problems or sweep.failures else 0


if __name__ == "__main__":
    sys.exit(main())
