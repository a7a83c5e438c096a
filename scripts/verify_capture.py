#!/usr/bin/env python3
"""Checks a capture that Sluice wrote against the one that it read, with readers that share no code with Sluice.

    verify_capture.py --before IN.pcap --after OUT.pcap [--dst MAC] [--src MAC] [--limit N] [--no-tshark]

Each of the first N packets of OUT must be a packet of IN, in the order of IN, with TTL or hop limit one lower, a right IPv4 header
checksum, an unchanged payload, and the given MAC addresses. tshark must find no bad IPv4 header checksum, and no packet malformed that
it does not find malformed in IN, too. Prints a summary; exit code 0 when all holds, 1 when not, 77 when scapy or tshark is missing.
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


# Malformed counts where one of these says so: what tshark makes of the applications above them depends on earlier packets.
HEADERS = ("eth", "ethertype", "vlan", "ieee8021ad", "ip", "ipv6", "tcp", "udp", "sctp")


def tshark_findings(path, limit, problems):
    """{frame number: (status of the outer IPv4 header checksum, malformed?)} of the first `limit` frames (0: all)."""
    command = ["tshark", "-n", "-r", path]
    for preference in ("ip.check_checksum:TRUE", "ip.defragment:FALSE", "ipv6.defragment:FALSE", "tcp.desegment_tcp_streams:FALSE"):
        command += ["-o", preference]
    if limit:
        command += ["-c", str(limit)]
    command += ["-T", "fields", "-E", "occurrence=f"]
    for field in ("frame.number", "frame.protocols", "ip.checksum.status"):
        command += ["-e", field]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        problems.append(f"tshark: {path}: {result.stderr.strip()[:200]}")
    findings = {}
    for line in result.stdout.splitlines():
        number, protocols, status = (line.split("\t") + ["", ""])[:3]
        layers = protocols.split(":")
        malformed = "_ws.malformed" in layers and layers[layers.index("_ws.malformed") - 1] in HEADERS
        findings[int(number)] = (status, malformed)
    return findings


def identity(ip):
    """What forwarding must not change, and the TTL; (None, 0) where the header is cut short."""
    raw = bytes(ip.original)
    if len(raw) < (20 if isinstance(ip, IP) else 40):
        return None, 0
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
    parser.add_argument("--limit", type=int, default=0, metavar="N", help="packets of OUT that are looked at (default: all)")
    parser.add_argument("--no-tshark", action="store_true")
    options = parser.parse_args()

    problems = []
    source = enumerate(packets(options.before), 1)
    matches = {}  # frame number in OUT -> frame number in IN
    last_before = 0
    count = 0
    skipped = 0
    for packet in packets(options.after):
        if options.limit and count == options.limit:
            break
        count += 1
        ip = network_layer(packet)
        if ip is None:
            problems.append(f"packet {count}: not IP")
            continue
        want, ttl = identity(ip)
        if want is None:
            problems.append(f"packet {count}: no whole IP header")
            continue
        if isinstance(ip, IP):
            header = bytes(ip.original)[:ip.ihl * 4]
            if ones_complement_sum(header) != 0xFFFF:
                problems.append(f"packet {count}: wrong IPv4 header checksum")
            # scapy's own computation agrees. The header alone is built: its length field and payload stay out of it.
            elif not ip.options:
                bare = IP(header)
                del bare.chksum
                if IP(bytes(bare)[:20]).chksum != ip.chksum:
                    problems.append(f"packet {count}: scapy computes another checksum")
        if options.dst and packet.dst != options.dst:
            problems.append(f"packet {count}: destination MAC {packet.dst}")
        if options.src and packet.src != options.src:
            problems.append(f"packet {count}: source MAC {packet.src}")
        found = False
        for last_before, before in source:
            other = network_layer(before)
            if other is not None:
                have, ttl_before = identity(other)
                if have == want and ttl_before == ttl + 1:
                    found = True
                    matches[count] = last_before
                    break
            skipped += 1
        if not found:
            problems.append(f"packet {count}: no packet of the input (in order) has these bytes and TTL {ttl + 1}")
            break

    if not options.no_tshark:
        if shutil.which("tshark") is None:
            print("tshark is missing", file=sys.stderr)
            sys.exit(77)
        after = tshark_findings(options.after, options.limit, problems)
        before = tshark_findings(options.before, last_before, problems)
        if len(after) != count:
            problems.append(f"tshark reads {len(after)} packets, scapy {count}")
        for number, (status, malformed) in after.items():
            if status in ("0", "Bad"):
                problems.append(f"tshark: packet {number} has a bad checksum")
            elif malformed and not before.get(matches.get(number), ("", False))[1]:
                problems.append(f"tshark: packet {number} is malformed, and was not in the input")
    for problem in problems[:20]:
        print(problem)
    print(f"{count} packets out, {skipped} of the input not forwarded before the last of them, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
