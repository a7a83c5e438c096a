#!/usr/bin/env python3
"""Rules about the state of connections decide as the kernel's connection tracking does.

    conntrack_test.py SLUICE [--lists N] [--seconds S] [--seed N] [--keep FOLDER]

Draws lists of nft with `ct state`, has the kernel forward the packets of drawn connections from one TUN device to another
and back, and compares which packets come out with what sluice lets through with the same list: TCP segments in any order,
UDP, echo requests and replies, and ICMP errors that quote earlier packets, in IPv4 and IPv6.

Needs what kernel_filters_test.py needs; without it this ends with 77, which CTest counts as skipped. A list is repeated by
--seed (printed) with --lists 1."""
import argparse
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time

import kernel_filters_test as kernel_filters
from kernel_filters_test import ICMP, ICMP6, TCP, UDP, checksum, need, tool

STATES = ["new", "established", "related", "invalid"]
SYN, ACK, FIN, RST = 2, 16, 1, 4


class Packet:
    def __init__(self, data, inside):
        self.bytes = data
        self.inside = inside  # comes from the clients' side


class Kernel(kernel_filters.Kernel):
    def __init__(self):
        super().__init__()
        need("ip", "route", "add", "10.0.0.0/8", "dev", "in0")
        need("ip", "-6", "route", "add", "2001:db8:a::/48", "dev", "in0")
        # Segments have no sequence numbers worth the name here, and quoted ones no checksums.
        for name, value in {"nf_conntrack_tcp_be_liberal": 1, "nf_conntrack_tcp_ignore_invalid_rst": 1,
                            "nf_conntrack_checksum": 0}.items():
            path = pathlib.Path("/proc/sys/net/netfilter") / name
            if path.exists():
                path.write_text(str(value))

    def passed(self, packets):
        for fd in self.fds:
            self.read(fd)
        out = set()
        for p in packets:
            os.write(self.fds[0 if p.inside else 1], p.bytes)
            for fd in self.fds:
                for frame in self.read(fd):
                    i = number_of(frame)
                    if i is not None and i < len(packets) and packets[i].bytes[-8:] == frame[-8:]:
                        out.add(i)
        return out


def number_of(ip):
    if ip[0] >> 4 == 4:
        return struct.unpack_from("!H", ip, 4)[0]
    return struct.unpack_from("!I", ip)[0] & 0xfffff


def with_ip(family, number, source, target, protocol, payload):
    if family == 4:
        head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(payload), number, 0, 64, protocol, 0, source, target)
        return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + payload
    return struct.pack("!IHBB", 6 << 28 | number, len(payload), protocol, 64) + source + target + payload


def address(family, inside, seed, host):
    if family == 4:
        return bytes([10, seed >> 8 & 255, seed & 255, host]) if inside else bytes([192, 0, 2, 100 + host])
    net = "20010db8000a" if inside else "20010db8000b"
    return bytes.fromhex(net) + bytes(6) + struct.pack("!HBB", seed & 0xffff, 0, host)


def draw_packets(rng, seed, family, count):
    """Of a few connections, in both directions; the number of each stands in its IP header."""
    sent, packets = [], []
    icmp = ICMP if family == 4 else ICMP6
    for number in range(count):
        protocol = rng.choice([TCP, TCP, TCP, UDP, icmp])
        client, server = address(family, True, seed, rng.randint(1, 2)), address(family, False, seed, rng.randint(1, 2))
        port = rng.randint(1, 3)
        reply = rng.random() < 0.45
        source, target = (server, client) if reply else (client, server)
        ends = (80, port) if reply else (port, 80)
        if rng.random() < 0.1 and sent:
            quoted = rng.choice(sent)
            header = 20 if family == 4 else 40
            to = quoted[12:16] if family == 4 else quoted[8:24]
            if rng.random() < 0.1:
                to = address(family, True, seed, 3)
            kind = rng.choice([3, 11, 12] if family == 4 else [1, 2, 3])
            source = bytes([198, 51, 100, 1]) if family == 4 else bytes.fromhex("20010db8000c") + bytes(9) + b"\1"
            size = rng.choice([header + 8, header + 8, len(quoted), header + rng.randrange(8)])
            # A message to the clients comes from the servers' side.
            inside = not (to[0] == 10 if family == 4 else to[5] == 0xa)
            packets.append(Packet(with_ip(family, number, source, to, icmp, bytes([kind, 0]) + bytes(6) + quoted[:size]), inside))
            continue
        if protocol == TCP:
            flags = rng.choice([SYN, SYN, SYN | ACK, ACK, ACK, ACK | 8, FIN | ACK, RST, RST | ACK, 0, SYN | FIN, FIN])
            payload = struct.pack("!HHIIBBHHH", *ends, 0, 0, 0x50, flags, 1000, 0, 0)
        elif protocol == UDP:
            payload = struct.pack("!HHHH", *ends, 8 + 4, 0) + struct.pack("!I", number)
        else:
            types = (8, 0) if family == 4 else (128, 129)
            answers = rng.random() < 0.5
            payload = bytes([types[answers], 0, 0, 0]) + struct.pack("!HH", port, 1)
            reply = answers if rng.random() < 0.9 else not answers
            source, target = (server, client) if reply else (client, server)
        data = with_ip(family, number, source, target, protocol, payload)
        sent.append(data)
        packets.append(Packet(data, not reply))
    return packets


def draw_list(rng, seed, family):
    some = lambda: rng.sample(STATES, rng.randint(1, 3))
    rules = []
    for _ in range(rng.randint(1, 5)):
        rule = ""
        dice = rng.random()
        if dice < 0.6:
            rule += "ct state " + rng.choice(["", "", "!= "]) + rng.choice(STATES) + " "
        elif dice < 0.8:
            rule += "ct state { " + ", ".join(some()) + " } "
        elif dice < 0.87:
            rule += "ct state " + ",".join(some()) + " "
        elif dice < 0.94:
            keys = some()
            rules.append("ct state vmap { " + ", ".join(f"{k} : {rng.choice(['accept', 'drop'])}" for k in keys) + " }")
            continue
        dice = rng.random()
        host = lambda inside: ("ip " if family == 4 else "ip6 ") + rng.choice(["saddr ", "daddr "]) + str(
            kernel_filters.ipaddress.ip_address(address(family, inside, seed, rng.randint(1, 2))))
        if dice < 0.25:
            rule += f"tcp {rng.choice(['sport', 'dport'])} {{ 80, {rng.randint(1, 3)} }} "
        elif dice < 0.4:
            rule += f"udp {rng.choice(['sport', 'dport'])} {rng.choice([80, 1, 2])} "
        elif dice < 0.5:
            rule += ("icmp" if family == 4 else "icmpv6") + " type echo-request "
        elif dice < 0.7:
            rule += host(rng.random() < 0.5) + " "
        rules.append(rule + rng.choice(["accept", "accept", "drop"]))
    policy = rng.choice(["drop", "drop", "accept"])
    name = "ip" if family == 4 else "ip6"
    body = "\n".join(f"    {r}" for r in rules)
    # Tracking is on, whatever the rules ask for.
    track = f"  chain track {{ type filter hook prerouting priority 0; ct state invalid counter; }}\n"
    return name, (f"table {name} t {{\n{track}  chain f {{\n    type filter hook forward priority 0; policy {policy};\n"
                  f"{body}\n  }}\n}}\n")


def write_capture(path, packets):
    """At one time, as the kernel sees them: nothing ends in between."""
    with open(path, "wb") as f:
        f.write(struct.pack("<IHHiIII", 0xa1b2c3d4, 2, 4, 0, 0, 65535, 101))
        for i, p in enumerate(packets):
            f.write(struct.pack("<IIII", 1, i, len(p.bytes), len(p.bytes)) + p.bytes)


def read_capture(path):
    data = path.read_bytes()
    link = struct.unpack_from("<I", data, 20)[0]
    at, skip, found = 24, 0 if link == 101 else 14, set()
    while at < len(data):
        size = struct.unpack_from("<I", data, at + 8)[0]
        found.add(number_of(data[at + 16 + skip:at + 16 + size]))
        at += 16 + size
    return found


def one(kernel, sluice, folder, seed, count, keep):
    rng = random.Random(seed)
    family = rng.choice([4, 4, 6])
    name, text = draw_list(rng, seed, family)
    packets = draw_packets(rng, seed, family, count)
    need("nft", "flush", "ruleset")
    need("nft", "-f", "-", text=text)
    rules = folder / "rules.json"
    rules.write_text(need("nft", "-j", "list", "ruleset"))
    kernel_out = kernel.passed(packets)
    capture, out = folder / "in.pcap", folder / "out.pcap"
    write_capture(capture, packets)
    done = tool(sluice, "run", "-q", "--acl", str(rules), "--format", "nft:t/f", "--in", str(capture), "--out", str(out))
    said = ""
    if done.returncode != 0:
        said = done.stderr
    else:
        ours = read_capture(out)
        for i in sorted(kernel_out ^ ours):
            said = (f"packet {i} of {len(packets)}: the kernel {'passes' if i in kernel_out else 'drops'} it\n"
                    f"{packets[i].bytes.hex()}")
            break
    if said and keep:
        keep.mkdir(parents=True, exist_ok=True)
        shutil.copy(rules, keep / f"{seed}.json")
        shutil.copy(capture, keep / f"{seed}.pcap")
    return (f"---- seed {seed}: {said}\n{text}" if said else ""), len(kernel_out), len(packets)


def main(doc, file, kernel_class, one):
    """`one` compares one list, and gives what differs, how many packets the kernel passes, and of how many."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sluice", type=lambda p: str(pathlib.Path(p).resolve()))
    parser.add_argument("--lists", type=int, default=120)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--packets", type=int, default=300, help="per list")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for the lists that differ")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.inside:
        missing = [t for t in ("nft", "ip", "unshare") if not shutil.which(t)]
        enter = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-rn"]
        if missing or not os.path.exists("/dev/net/tun"):
            print(f"skipped: not here: {', '.join(missing or ['/dev/net/tun'])}")
            return 77
        probe = "nft 'add table inet t; add chain inet t c; add rule inet t c ct state new' && ip tuntap add dev t mode tun"
        if tool(*enter, "sh", "-c", probe).returncode != 0:
            print("skipped: no network namespace with TUN devices, nft and connection tracking here (root)")
            return 77
        return subprocess.run([*enter, sys.executable, file, *sys.argv[1:], "--inside"]).returncode
    failures, passed, total, lists = [], 0, 0, 0
    with tempfile.TemporaryDirectory(prefix="sluice_conntrack") as folder:
        kernel = kernel_class()
        end = time.monotonic() + options.seconds
        for seed in range(options.seed, options.seed + options.lists):
            if time.monotonic() > end or len(failures) >= 5:
                break
            failure, out, count = one(kernel, options.sluice, pathlib.Path(folder), seed, options.packets, options.keep)
            lists, passed, total = lists + 1, passed + out, total + count
            if failure:
                failures.append(failure)
    print(f"{lists} lists, {total} packets, of which the kernel passes {passed}; {len(failures)} lists differ")
    for failure in failures:
        print(failure)
    # Lists that pass nothing, or all, would compare nothing.
    return 1 if failures or lists == 0 or not 0.05 < passed / total < 0.95 else 0


if __name__ == "__main__":
    sys.exit(main(__doc__, __file__, Kernel, one))
