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
    from scapy.layers.inet import ICMP, IP, defragment
    from scapy.layers.inet6 import IPv6
    from scapy.layers.l2 import Ether
    from scapy.packet import Raw
    from scapy.utils import PcapReader
except ImportError:
    print("scapy is missing", file=sys.stderr)
    sys.exit(77)


def network_layers(path):
    with PcapReader(path) as reader:
        for packet in reader:
            layer = packet.getlayer(IP) if IP in packet and (IPv6 not in packet or packet[IP].underlayer is None
                                                             or not isinstance(packet[IP].underlayer, IPv6)) else packet.getlayer(IPv6)
            if layer is not None:
                yield layer


def payload_of(layer):
    """The bytes after the IPv4 header as its length says, or after the IPv6 header."""
    raw = bytes(layer)
    return raw[layer.ihl * 4:layer.len] if isinstance(layer, IP) else raw[40:40 + layer.plen]


def identity(layer, lower):
    """What forwarding keeps, with the TTL that it had before."""
    if isinstance(layer, IP):
        return (4, layer.src, layer.dst, layer.id, layer.proto, layer.tos, int(layer.flags) & 6, layer.frag, layer.ttl + lower, payload_of(layer))
    return (6, layer.src, layer.dst, layer.tc, layer.fl, layer.nh, layer.hlim + lower, payload_of(layer))


def checksums_are_right(layer):
    """Whether scapy, left to compute the IPv4 and ICMP checksums anew, writes the same bytes."""
    again = layer.copy()
    if isinstance(again, IP):
        raw = bytes(again)[:again.ihl * 4]
        total = sum(int.from_bytes(raw[i:i + 2], "big") for i in range(0, len(raw), 2))
        while total >> 16:
            total = (total & 0xFFFF) + (total >> 16)
        if total != 0xFFFF:
            return False
    inner = again.payload
    if getattr(again, "proto", None) == 1 and again.frag == 0 and isinstance(inner, ICMP) or getattr(again, "nh", None) == 58:
        stored = inner.fields.get("chksum", inner.fields.get("cksum"))
        for name in ("chksum", "cksum"):
            inner.fields.pop(name, None)
        built = bytes(again.__class__(bytes(again)))
        rebuilt = again.__class__(built).payload
        computed = getattr(rebuilt, "chksum", getattr(rebuilt, "cksum", None))
        return stored == computed
    return True


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
            # The quote may have its TTL, checksum and options changed already.
            head = 20 if quote[0] >> 4 == 4 else 40
            ihl = (quote[0] & 15) * 4 if head == 20 else 40
            same = [raw for raw in sources[layer.dst]
                    if raw[head - 8 if head == 20 else 8:head] == quote[head - 8 if head == 20 else 8:head] and raw[2:6] == quote[2:6]
                    and raw[ihl:len(quote)] == quote[ihl:]]
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
    # Fragments of fragments that came stay fragments: only what makes a whole packet is put together.
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
    """Runs of fragments of one packet: they left one after the other."""
    groups = []
    for f in fragments:
        last = groups[-1][-1] if groups else None
        key = (f.src, f.dst, f.id, f.proto)
        if last is not None and (last.src, last.dst, last.id, last.proto) == key and f.frag * 8 == last.frag * 8 + len(payload_of(last)):
            groups[-1].append(f)
        else:
            groups.append([f])
    return groups


def together(group):
    """The identity of the packet that the fragments were cut from."""
    first, last = group[0], group[-1]
    if first.frag == 0 and not int(last.flags) & 1:
        whole = [p for p in defragment([Ether() / bytes_as_ip(f) for f in group]) if IP in p]
        if len(whole) != 1 or payload_of(whole[0][IP]) != b"".join(payload_of(f) for f in group):
            return None
    payload = b"".join(payload_of(f) for f in group)
    flags = (int(first.flags) & 6) | (int(last.flags) & 1)
    return (4, first.src, first.dst, first.id, first.proto, first.tos, flags & 6, first.frag, first.ttl + 1, payload)


def bytes_as_ip(layer):
    return IP(bytes(layer)[:layer.len])


if __name__ == "__main__":
    sys.exit(main())
