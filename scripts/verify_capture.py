#!/usr/bin/env python3
"""Checks a capture that Sluice wrote against the one that it read, with readers that share no code with Sluice.

    verify_capture.py --before IN.pcap --after OUT.pcap [--dst MAC] [--src MAC] [--no-tshark]

Every packet of OUT must be a packet of IN, in the order of IN, with TTL or hop limit one lower, a right IPv4 header checksum, an
unchanged payload, and the given MAC addresses. tshark must find no bad IPv4 checksum and no malformed packet that it did not find in
the matching input. Prints a summary; exit code 0 when all holds, 1 when not, 77 when scapy or tshark is missing.
"""

import argparse
import shutil
import subprocess
import sys

try:
    from scapy.layers.inet import IP
    from scapy.layers.inet6 import IPv6
    from scapy.layers.l2 import Dot1AD, Dot1Q, Ether
    from scapy.utils import PcapReader
except ImportError:
    print("scapy is missing", file=sys.stderr)
    sys.exit(77)


def packets(path):
    with PcapReader(path) as reader:
        for packet in reader:
            yield packet


def network_layer(packet):
    """The first IP layer below Ethernet and VLAN tags, or None."""
    layer = packet
    while layer is not None and isinstance(layer, (Ether, Dot1Q, Dot1AD)):
        layer = layer.payload
    return layer if isinstance(layer, (IP, IPv6)) else None


def ones_complement_sum(header):
    total = sum(int.from_bytes(header[i:i + 2], "big") for i in range(0, len(header), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def identity(ip):
    """What forwarding must not change, and the TTL."""
    raw = bytes(ip.original)
    if isinstance(ip, IP):
        length = int.from_bytes(raw[2:4], "big")
        raw = raw[:length]
        return raw[:8] + b"\0" + raw[9:10] + b"\0\0" + raw[12:], raw[8]
    length = 40 + int.from_bytes(raw[4:6], "big")
    raw = raw[:length]
    return raw[:7] + b"\0" + raw[8:], raw[7]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--before", required=True)
    parser.add_argument("--after", required=True)
    parser.add_argument("--dst")
    parser.add_argument("--src")
    parser.add_argument("--no-tshark", action="store_true")
    options = parser.parse_args()

    problems = []
    source = packets(options.before)
    count = 0
    skipped = 0
    for packet in packets(options.after):
        count += 1
        ip = network_layer(packet)
        if ip is None:
            problems.append(f"packet {count}: not IP")
            continue
        want, ttl = identity(ip)
        if isinstance(ip, IP):
            header = bytes(ip.original)[:ip.ihl * 4]
            if ones_complement_sum(header) != 0xFFFF:
                problems.append(f"packet {count}: wrong IPv4 header checksum")
            # scapy's own computation agrees
            copy = ip.copy()
            given = copy.chksum
            del copy.chksum
            if IP(bytes(copy)).chksum != given and not ip.options:
                problems.append(f"packet {count}: scapy computes another checksum")
        if options.dst and packet.dst != options.dst:
            problems.append(f"packet {count}: destination MAC {packet.dst}")
        if options.src and packet.src != options.src:
            problems.append(f"packet {count}: source MAC {packet.src}")
        found = False
        for before in source:
            other = network_layer(before)
            if other is not None:
                have, ttl_before = identity(other)
                if have == want and ttl_before == ttl + 1:
                    found = True
                    break
            skipped += 1
        if not found:
            problems.append(f"packet {count}: no packet of the input (in order) has these bytes and TTL {ttl + 1}")
            break

    if not options.no_tshark:
        if shutil.which("tshark") is None:
            print("tshark is missing", file=sys.stderr)
            sys.exit(77)
        command = ["tshark", "-n", "-r", options.after, "-o", "ip.check_checksum:TRUE", "-Y",
                   "ip.checksum.status == \"Bad\"", "-T", "fields", "-e", "frame.number"]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            problems.append("tshark: " + result.stderr.strip())
        # A quoted header inside an ICMP error may be bad as it came; only outer headers count, which scapy has judged above.
        bad = [line for line in result.stdout.split() if line]
        if bad:
            inner = subprocess.run(["tshark", "-n", "-r", options.after, "-o", "ip.check_checksum:TRUE", "-Y",
                                    "ip.checksum.status == \"Bad\" && !icmp", "-T", "fields", "-e", "frame.number"],
                                   capture_output=True, text=True, check=False).stdout.split()
            problems += [f"tshark: packet {n} has a bad checksum" for n in inner]

    for problem in problems[:20]:
        print(problem)
    print(f"{count} packets out, {skipped} of the input not forwarded before the last of them, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
