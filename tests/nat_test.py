#!/usr/bin/env python3
"""Addresses are translated as the kernel translates them.

    nat_test.py SLUICE [--lists N] [--seconds S] [--seed N] [--keep FOLDER]

Has the kernel translate and forward the packets of drawn connections between two TUN devices, by nft's snat, dnat and both
for one host, behind a drawn filter with `ct state`, and compares what comes out, byte by byte but for TTL, with what sluice
makes of them by the same rules, in its own language or as nft has them: TCP in any order, UDP with and without checksums,
echo, and ICMP errors from both sides that quote packets as that side sees them. Source ports differ, so that both keep them;
where a connection needs another one, as its answers would be another's, both choose their own, and the list ends there.

Needs what conntrack_test.py needs; without it this ends with 77, which CTest counts as skipped. A list is repeated by
--seed (printed) with --lists 1."""
import os
import pathlib
import random
import shutil
import struct
import sys

import conntrack_test
import kernel_filters_test as kernel_filters
from conntrack_test import ACK, FIN, RST, SYN, Packet, number_of
from kernel_filters_test import ICMP, TCP, UDP, checksum, need, tool

ROUTER = bytes([198, 51, 100, 1])


class Kernel(conntrack_test.Kernel):
    def __init__(self):
        super().__init__()
        need("ip", "route", "add", "203.0.0.0/8", "dev", "out0")

    def passed(self, packets):
        """What comes out, by the packet's number."""
        for fd in self.fds:
            self.read(fd)
        out = {}
        for p in packets:
            os.write(self.fds[0 if p.inside else 1], p.bytes)
            for fd in self.fds:
                for frame in self.read(fd):
                    if frame[0] >> 4 == 4 and number_of(frame) < len(packets):
                        out[number_of(frame)] = frame
        return out


def ip(source, target, protocol, payload, number):
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(payload), number, 0, 64, protocol, 0, source, target)
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + payload


def transport(source, target, protocol, ends, what, number, summed):
    """`what`: flags of TCP, the type of ICMP."""
    if protocol == ICMP:
        body = bytes([what, 0, 0, 0]) + struct.pack("!HH", ends[0], 1) + struct.pack("!I", number)
        return body[:2] + struct.pack("!H", checksum(body)) + body[4:]
    body = (struct.pack("!HHIIBBHHH", *ends, 7, 8, 0x50, what, 1000, 0, 0) if protocol == TCP
            else struct.pack("!HHHH", *ends, 12, 0)) + struct.pack("!I", number)
    if not summed:
        return body
    pseudo = source + target + struct.pack("!BBH", 0, protocol, len(body))
    at = 16 if protocol == TCP else 6
    return body[:at] + struct.pack("!H", checksum(pseudo + body) or 0xffff) + body[at + 2:]


class World:
    """Hosts of one list: nobody else has their addresses."""

    def __init__(self, seed):
        a, b = seed >> 8 & 255, seed & 255
        self.inside = [bytes([10, a, b, h]) for h in (1, 2)]
        self.server = bytes([10, a, b, 5])      # 203.a.b.5, port 443 is its 8443
        self.alone = bytes([10, a, b, 7])       # 203.a.b.7 is its own
        self.outside = [bytes([192, 0, 2, h]) for h in (101, 102)]
        self.public = lambda h: bytes([203, a, b, h])

    def rules(self):
        t = lambda address: ".".join(map(str, address))
        nft = f"""table ip n {{
  chain pre {{ type nat hook prerouting priority -100;
    ip daddr {t(self.public(5))} tcp dport 443 dnat to {t(self.server)}:8443
    ip daddr {t(self.public(5))} udp dport 53 dnat to {t(self.server)}
    ip daddr {t(self.public(7))} dnat to {t(self.alone)}
  }}
  chain post {{ type nat hook postrouting priority 100;
    ip saddr {t(self.alone)} snat to {t(self.public(7))}
    ip saddr {t(self.inside[1])} tcp dport 81 accept
    ip saddr 10.0.0.0/8 snat to {t(self.public(1))}
  }}
}}
"""
        ours = f"""dnat {t(self.public(5))} tcp 443 to {t(self.server)}:8443
dnat {t(self.public(5))} udp 53 to {t(self.server)}
static {t(self.alone)} to {t(self.public(7))}
snat {t(self.inside[1])} tcp 81 to itself
snat 10.0.0.0/8 to {t(self.public(1))}
"""
        return nft, ours

    def draw(self, rng):
        """(protocol, the two ends as the inside sees them, as the outside does, whether the inside begins)."""
        outer = rng.choice(self.outside)
        protocol = rng.choice([TCP, TCP, UDP, ICMP])
        k = rng.randrange(3)
        dice = rng.random()
        if dice < 0.55:
            h = rng.randrange(2)
            ends = (2000 + 10 * h + k, 80 + (rng.random() < 0.2)) if protocol != ICMP else (3000 + 10 * h + k,) * 2
            public = self.inside[h] if h == 1 and protocol == TCP and ends[1] == 81 else self.public(1)
            return protocol, (self.inside[h], outer, ends), (public, outer, ends), True
        if dice < 0.75:
            begins = rng.random() < 0.5
            ends = (4000 + k, 80) if begins else (80, 4000 + k)
            if protocol == ICMP:
                ends = (5000 + k + 10 * begins,) * 2
            return protocol, (self.alone, outer, ends), (self.public(7), outer, ends), begins
        if protocol == UDP:
            return protocol, (self.server, outer, (53, 6000 + k)), (self.public(5), outer, (53, 6000 + k)), False
        return TCP, (self.server, outer, (8443, 6000 + k)), (self.public(5), outer, (443, 6000 + k)), False


def draw_packets(rng, world, count):
    sent, packets = [], []  # sent: as either side sees them

    def one_way(number, protocol, sides, begins, from_inside, what, summed):
        """As the sender's side sees it, and as the other does."""
        seen = []
        for host, peer, ends in sides:
            source, target, ports = (host, peer, ends) if from_inside else (peer, host, ends[::-1])
            seen.append(ip(source, target, protocol, transport(source, target, protocol, ports, what, number, summed), number))
        return seen if from_inside else seen[::-1]

    for number in range(count):
        if rng.random() < 0.12 and sent:
            (mine, other), from_inside = rng.choice(sent)
            # Somebody behind the receiver, or the receiver itself, could not take it.
            by = rng.choice([ROUTER, other[16:20]] if from_inside else [world.inside[0][:3] + b"\xfe", other[16:20]])
            quoted = other[:rng.choice([28, 28, len(other)])]
            body = bytes([rng.choice([3, 11, 12]), 0]) + bytes(6) + quoted
            body = body[:2] + struct.pack("!H", checksum(body)) + body[4:]
            packets.append(Packet(ip(by, other[12:16], ICMP, body, number), not from_inside))
            continue
        protocol, inner, outer, begins = world.draw(rng)
        from_inside = begins if rng.random() < 0.6 else not begins
        if protocol == TCP:
            what = rng.choice([SYN, SYN, SYN | ACK, ACK, ACK, ACK | 8, FIN | ACK, RST, RST | ACK])
        else:
            what = 8 if from_inside == begins else 0
        seen = one_way(number, protocol, (inner, outer), begins, from_inside, what, protocol != UDP or rng.random() < 0.7)
        sent.append((seen, from_inside))
        packets.append(Packet(seen[0], from_inside))
    return packets


def read_capture(path):
    data = path.read_bytes()
    skip = 0 if struct.unpack_from("<I", data, 20)[0] == 101 else 14
    at, found = 24, {}
    while at < len(data):
        size = struct.unpack_from("<I", data, at + 8)[0]
        frame = data[at + 16 + skip:at + 16 + size]
        found[number_of(frame)] = frame
        at += 16 + size
    return found


def without_ttl(frame):
    if frame is None:
        return None
    if checksum(frame[:20]) != 0:
        return b"wrong checksum " + frame
    return frame[:8] + b"\0" + frame[9:10] + b"\0\0" + frame[12:]


def stepped_aside(sent, theirs, mine):
    """Whether both have given a connection another source port, as answers to its own would be another connection's."""
    if theirs is None or mine is None or sent[9] == ICMP:
        return False
    port = [frame[20:22] for frame in (sent, theirs, mine)]
    return port[0] != port[1] and port[0] != port[2] and theirs[:20] == mine[:20] and theirs[22:24] == mine[22:24]


def one(kernel, sluice, folder, seed, count, keep):
    rng = random.Random(seed)
    world = World(seed)
    _, text = conntrack_test.draw_list(rng, seed, 4)
    if rng.random() < 0.4:
        text = "table ip t {\n  chain f {\n    type filter hook forward priority 0; policy accept;\n    ct state invalid drop\n  }\n}\n"
    # The kernel lets what is of no connection out as it is.
    text = "\n".join(line + "\n    ct state invalid drop" if "hook forward" in line else line for line in text.split("\n"))
    translation, ours = world.rules()
    packets = draw_packets(rng, world, count)
    need("nft", "flush", "ruleset")
    need("nft", "-f", "-", text=text)
    rules, nat = folder / "rules.json", folder / "nat.txt"
    rules.write_text(need("nft", "-j", "list", "ruleset"))
    nat.write_text(ours)
    need("nft", "-f", "-", text=translation)
    if seed % 2 == 0:
        nat.write_text(need("nft", "-j", "list", "ruleset"))
    kernel_out = kernel.passed(packets)
    capture, out = folder / "in.pcap", folder / "out.pcap"
    conntrack_test.write_capture(capture, packets)
    done = tool(sluice, "run", "-q", "--acl", str(rules), "--format", "nft:t/f", "--nat", str(nat), "--in", str(capture),
                "--out", str(out))
    said = done.stderr if done.returncode != 0 else ""
    if not said:
        found = read_capture(out)
        for i in sorted(kernel_out.keys() | found.keys()):
            theirs, mine = without_ttl(kernel_out.get(i)), without_ttl(found.get(i))
            if theirs != mine and stepped_aside(packets[i].bytes, theirs, mine):
                count = i  # the rest depends on the ports that both have chosen
                break
            if theirs != mine:
                show = lambda frame: "nothing" if frame is None else frame.hex()
                said = (f"packet {i} of {len(packets)}, from {'inside' if packets[i].inside else 'outside'}:\n"
                        f"  {packets[i].bytes.hex()}\n  the kernel: {show(theirs)}\n  sluice:     {show(mine)}")
                break
    if said and keep:
        keep.mkdir(parents=True, exist_ok=True)
        for file in (rules, nat, capture):
            shutil.copy(file, keep / f"{seed}.{file.name}")
    return (f"---- seed {seed}: {said}\n{text}{ours}" if said else ""), len([i for i in kernel_out if i < count]), count


if __name__ == "__main__":
    sys.exit(conntrack_test.main(__doc__, __file__, Kernel, one))
