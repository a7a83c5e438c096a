#!/usr/bin/env python3
"""Checks what Sluice's slow path wrote against what it read, by scapy, which shares no code with it.

    verify_slow_path.py --before IN.pcap --after OUT.pcap --router ADDRESS [--router ADDRESS]

Each packet of OUT must be one of: a packet of IN with TTL or hop limit one lower; fragments that scapy puts together to such a packet; an
ICMP error from a router address to the source of a packet of IN that it quotes. All checksums must be what scapy computes. IPv4 options may
differ within their length. Prints how many there were of each; exit code 0 when all holds, 1 when not, 77 when scapy is missing.
"""
import argparse
import collections
import sys

try:
    from scapy.layers.inet import IP, defragment
    from scapy.layers.inet6 import IPv6, in6_chksum
    from scapy.layers.l2 import Dot1Q, Ether
    from scapy.utils import PcapReader, checksum
except ImportError:
    print("scapy is missing", file=sys.stderr)
    sys.exit(77)


def network_layers(path):
    with PcapReader(path) as reader:
        for packet in reader:
            layer = packet
            while layer is not None and isinstance(layer, (Ether, Dot1Q)):
                layer = layer.payload
            if isinstance(layer, (IP, IPv6)):
                yield layer


def payload_of(layer):
    """The bytes after the IPv4 header as its length says, or after the IPv6 header."""
    raw = bytes(layer)
    return raw[layer.ihl * 4:layer.len] if isinstance(layer, IP) else raw[40:40 + layer.plen]


def identity(layer, lower):
    """What forwarding keeps, with the TTL that it had before."""
    if isinstance(layer, IP):
        return (4, layer.src, layer.dst, layer.id, layer.proto, layer.tos, int(layer.flags), layer.frag, layer.ttl + lower, payload_of(layer))
    return (6, layer.src, layer.dst, layer.tc, layer.fl, layer.nh, layer.hlim + lower, payload_of(layer))


def checksums_are_right(layer):
    """The IPv4 header's and ICMP's: scapy's sum over what holds its own checksum is 0."""
    raw = bytes(layer)
    if isinstance(layer, IP):
        if checksum(raw[:layer.ihl * 4]) != 0:
            return False
        return layer.proto != 1 or layer.frag != 0 or int(layer.flags) & 1 or checksum(payload_of(layer)) == 0
    return layer.nh != 58 or in6_chksum(58, layer, payload_of(layer)) == 0


def quote_of(layer):
    """The bytes that an ICMP error quotes."""
    return payload_of(layer)[8:]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", required=True)
    parser.add_argument("--after", required=True)
    parser.add_argument("--router", action="append", default=[])
    options = parser.parse_args()

    wanted = collections.Counter()
    sources = collections.defaultdict(list)  # source -> bytes of its packets
    for layer in network_layers(options.before):
        wanted[identity(layer, 0)] += 1
        sources[layer.src].append(bytes(layer))
    counts = collections.Counter()
    problems = []
    fragments = []
    for number, layer in enumerate(network_layers(options.after), 1):
        if not checksums_are_right(layer):
            problems.append(f"packet {number}: a checksum is wrong")
        if layer.src in options.router:
            quote = quote_of(layer)
            # The quote may have its TTL and checksum changed already.
            v4 = quote[0] >> 4 == 4
            changed = (8, 10, 11) if v4 else (7,)
            same = [raw for raw in sources[layer.dst]
                    if all(raw[i] == quote[i] for i in range(min(len(quote), len(raw))) if i not in changed) and len(quote) <= len(raw)]
            if not same:
                problems.append(f"packet {number}: an error that quotes nothing that came")
            if len(bytes(layer)) > (576 if isinstance(layer, IP) else 1280):
                problems.append(f"packet {number}: an error of {len(bytes(layer))} bytes")
            counts["errors"] += 1
        elif wanted[identity(layer, 1)] > 0:
            wanted[identity(layer, 1)] -= 1
            counts["forwarded"] += 1
        elif isinstance(layer, IP) and (layer.frag or int(layer.flags) & 1):
            fragments.append(layer.copy())
            counts["fragments"] += 1
        else:
            problems.append(f"packet {number}: {layer.summary()} was not there before")
    for group in group_fragments(fragments):
        whole = together(group)
        if whole is None or wanted[whole] == 0:
            problems.append(f"{len(group)} fragments of {group[0].src} > {group[0].dst} id {group[0].id} are no packet that came")
        else:
            wanted[whole] -= 1
            counts["put together"] += 1
    print(", ".join(f"{n} {what}" for what, n in sorted(counts.items())))
    for problem in problems[:20]:
        print(problem)
    return 1 if problems else 0


def group_fragments(fragments):
    """The fragments of each packet by offset, as far as they follow one another: some of equal cost are cut twice, and then not in order."""
    by_packet = collections.defaultdict(list)
    for f in fragments:
        by_packet[(f.src, f.dst, f.id, f.proto)].append(f)
    groups = []
    for pieces in by_packet.values():
        end = None
        for f in sorted(pieces, key=lambda piece: piece.frag):
            if f.frag * 8 != end:
                groups.append([])
            groups[-1].append(f)
            end = f.frag * 8 + len(payload_of(f))
    return groups


def together(group):
    """The identity of the packet that the fragments were cut from."""
    first, last = group[0], group[-1]
    if first.frag == 0 and not int(last.flags) & 1:
        whole = [p for p in defragment([Ether() / bytes_as_ip(f) for f in group]) if IP in p]
        if len(whole) != 1 or payload_of(whole[0][IP]) != b"".join(payload_of(f) for f in group):
            return None
    payload = b"".join(payload_of(f) for f in group)
    flags = (int(first.flags) & ~1) | (int(last.flags) & 1)
    return (4, first.src, first.dst, first.id, first.proto, first.tos, flags, first.frag, first.ttl + 1, payload)


def bytes_as_ip(layer):
    return IP(bytes(layer)[:layer.len])


if __name__ == "__main__":
    sys.exit(main())
