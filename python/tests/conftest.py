"""Inputs that the tests make: frames, captures, lists."""
import struct
import threading

import numpy as np
import pytest

import sluice


def ipv4_frame(src, dst, proto=6, sport=1024, dport=80, flags=0x02, ttl=64, payload=b"", dscp=0):
    """An Ethernet frame with IPv4, built by hand."""
    if proto == 6:
        l4 = struct.pack("!HHIIBBHHH", sport, dport, 0, 0, 0x50, flags, 0, 0, 0)
    elif proto == 17:
        l4 = struct.pack("!HHHH", sport, dport, 8 + len(payload), 0)
    else:
        l4 = struct.pack("!BBHHH", 8, 0, 0, 0, 0)
    total = 20 + len(l4) + len(payload)
    head = struct.pack("!BBHHHBBHII", 0x45, dscp << 2, total, 0, 0, ttl, proto, 0, src, dst)
    words = sum(struct.unpack("!10H", head))
    words = (words & 0xFFFF) + (words >> 16)
    words = ~((words & 0xFFFF) + (words >> 16)) & 0xFFFF
    head = head[:10] + struct.pack("!H", words) + head[12:]
    return b"\x02\0\0\0\0\1\x02\0\0\0\0\2\x08\0" + head + l4 + payload


def ipv6_frame(src, dst, proto=17, sport=1024, dport=53):
    l4 = struct.pack("!HHHH", sport, dport, 8, 0)
    head = struct.pack("!IHBB", 6 << 28, len(l4), proto, 64) + src + dst
    return b"\x02\0\0\0\0\1\x02\0\0\0\0\2\x86\xdd" + head + l4


def pcap(frames, nano=False):
    """A classic capture of frames, a second apart."""
    out = [struct.pack("<IHHiIII", 0xA1B23C4D if nano else 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1)]
    for i, frame in enumerate(frames):
        out.append(struct.pack("<IIII", 1_700_000_000 + i // 1000, i % 1000, len(frame), len(frame)) + frame)
    return b"".join(out)


def block(kind, body, order="<"):
    """A pcapng block."""
    body += bytes(-len(body) % 4)
    length = struct.pack(order + "I", 12 + len(body))
    return struct.pack(order + "I", kind) + length + body + length


def section(order="<"):
    return block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1), order)


def interface(order="<"):
    return block(1, struct.pack(order + "HHI", 1, 0, 262144), order)


def packet(frame, number, order="<", of=0):
    stamp = 1_700_000_000_000_000 + number
    return block(6, struct.pack(order + "IIIII", of, stamp >> 32, stamp & 0xFFFFFFFF, len(frame), len(frame)) + frame, order)


def pcapng(frames, order="<", interfaces=1):
    """A pcapng capture of frames, a microsecond apart, by interfaces in turns."""
    packets = [packet(frame, i, order, i % interfaces) for i, frame in enumerate(frames)]
    return section(order) + interface(order) * interfaces + b"".join(packets)


@pytest.fixture
def frames():
    """A mixture whose every packet has another source."""
    made = []
    for i in range(2000):
        if i % 11 == 3:
            made.append(ipv6_frame(bytes.fromhex("20010db8") + i.to_bytes(12, "big"), bytes.fromhex("20010db8") + bytes(11) + b"\7", dport=i % 100))
        elif i % 13 == 5:
            made.append(ipv4_frame(0x0A000000 + i, 0xC0000207, proto=1))
        elif i % 17 == 6:
            made.append(b"\xff" * 6 + b"\x02\0\0\0\0\2\x08\x06" + bytes(46))
        else:
            made.append(ipv4_frame(0x0A000000 + i, 0xC0000207, 6 if i % 2 else 17, 1024 + i, 80 + i % 3, payload=bytes(i % 40)))
    return made


RULES = "permit tcp from any to any port 80\ndeny udp from any to any\npermit icmp from any to any\n"


@pytest.fixture
def rules(tmp_path):
    path = tmp_path / "edge.acl"
    path.write_text(RULES)
    return path


@pytest.fixture
def graph(rules):
    return sluice.Graph.standard(acl=rules)


@pytest.fixture
def capture(frames, tmp_path):
    path = tmp_path / "in.pcap"
    path.write_bytes(pcap(frames))
    return path


CLASSBENCH = """\
@10.0.0.0/8	192.0.2.0/24	0 : 65535	80 : 80	0x06/0xFF	0x0000/0x0000
@10.0.0.0/9	192.0.2.7/32	0 : 65535	0 : 1023	0x00/0x00	0x0200/0x0200
@0.0.0.0/0	192.0.2.0/25	1024 : 65535	0 : 65535	0x11/0xFF	0x0000/0x0000
@172.16.0.0/12	0.0.0.0/0	0 : 65535	0 : 65535	0x00/0x00	0x0000/0x0000
"""


def classbench_oracle(text, keys):
    """The first rule that matches, by looking at one after another."""
    found = np.zeros(len(keys["src"]), np.uint32)
    for position, line in reversed(list(enumerate(text.splitlines(), 1))):
        fields = line[1:].replace(" : ", ":").split()
        hit = np.ones(len(found), bool)
        for name, field in (("src", fields[0]), ("dst", fields[1])):
            address, length = field.split("/")
            a, b, c, d = map(int, address.split("."))
            value = a << 24 | b << 16 | c << 8 | d
            mask = 0xFFFFFFFF << (32 - int(length)) & 0xFFFFFFFF
            hit &= (keys[name] & np.uint32(mask)) == np.uint32(value & mask)
        for name, field in (("sport", fields[2]), ("dport", fields[3])):
            low, high = map(int, field.split(":"))
            hit &= (keys[name] >= low) & (keys[name] <= high)
        for name, field in (("proto", fields[4]), ("flags", fields[5])):
            value, mask = (int(x, 16) for x in field.split("/"))
            hit &= (keys[name] & mask) == (value & mask)
        found[hit] = position
    return found


def random_keys(n, seed=1, flags=np.uint16):
    random = np.random.default_rng(seed)
    src = random.choice(np.array([0x0A000000, 0x0AF00000, 0xAC100000, 0x08080808], np.uint32), n) + random.integers(0, 256, n, np.uint32)
    dst = random.choice(np.array([0xC0000207, 0xC0000290, 0xC6336401], np.uint32), n)
    return {
        "src": src,
        "dst": dst,
        "sport": random.choice(np.array([80, 1023, 1024, 65535], np.uint16), n),
        "dport": random.choice(np.array([53, 80, 1023, 8080], np.uint16), n),
        "proto": random.choice(np.array([1, 6, 17, 47], np.uint8), n),
        "flags": random.choice(np.array([0, 2, 0x12], np.uint8), n) if flags is np.uint8 else random.choice(np.array([0, 0x0200, 0x1200], np.uint16), n),
    }


def looked_up_while_it_changes(acl, times, verdicts):
    """Three threads ask `verdicts()` so many times while another changes the list of one rule between deny and permit: each
    answer is of one generation."""
    seen, errors, stop = set(), [], threading.Event()

    def look():
        try:
            for _ in range(times):
                found = np.unique(verdicts())
                assert len(found) == 1, "the answers of one call are of one generation"
                seen.add(int(found[0]))
        except BaseException as error:
            errors.append(error)

    def change():
        while not stop.is_set():
            acl.update(text="replace 1 permit ip from any to any")
            acl.update(text="replace 1 deny ip from any to any")

    writer = threading.Thread(target=change)
    readers = [threading.Thread(target=look) for _ in range(3)]
    for thread in (writer, *readers):
        thread.start()
    for thread in readers:
        thread.join()
    stop.set()
    writer.join()
    assert not errors and seen <= {1, 2}
