#!/usr/bin/env python3
"""Routes as the kernel prints them lead where the kernel sends packets: tables of random routes of every kind are made in a
network namespace, printed by ip and route in every form, read by sluice, and looked up beside `ip route get`.
kernel_routes_test.py SLUICE   (ends with 77 where it cannot run)"""
import ctypes
import ipaddress
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

SLUICE = str(pathlib.Path(sys.argv.pop(1)).resolve())
LIMIT_S = 600
ROUNDS = 6 * int(os.environ.get("SLUICE_TEST_SCALE", "1"))
ROUTES, ADDRESSES = 40, 80

LINKS = ("e0", "e1", "e2", "e3")
GATEWAYS = {4: ("192.0.2.1", "192.0.2.2", "198.51.100.9"),
            6: ("2001:db8::1", "2001:db8::2", "2001:db8:1::9")}


def run(*words, text=None, check=True):
    done = subprocess.run(words, input=text, capture_output=True, text=True, timeout=LIMIT_S)
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(words)}: {done.returncode}: {done.stderr}")
    return done


def in_own_namespace():
    """None, or why there is no namespace to make routes in."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "there is no ip (iproute2)"
    if ctypes.CDLL(None, use_errno=True).unshare(0x40000000) != 0:  # CLONE_NEWNET
        return "unshare: " + os.strerror(ctypes.get_errno())
    try:
        # A router: whether a gateway has answered does not decide between routes (RFC 4191), the table alone does.
        pathlib.Path("/proc/sys/net/ipv6/conf/all/forwarding").write_text("1")
    except OSError as error:
        return str(error)
    made = run("ip", "-batch", "-", text="link set lo up\n" + "".join(
        f"link add {link} type veth peer name p{link}\nlink set {link} up\nlink set p{link} up\n" for link in LINKS) +
        "addr add 192.0.2.5/24 dev e0\naddr add 198.51.100.1/24 dev e1\naddr add 2001:db8::5/64 dev e0 nodad\n"
        "addr add 2001:db8:1::5/64 dev e1 nodad\n", check=False)
    return made.stderr.strip() or not_settled()


def not_settled():
    """None once the links are up and the kernel has their own addresses, which it adds up to a second later."""
    own = [f"anycast {address} dev {link} " for link, of in (("e0", "2001:db8::"), ("e1", "2001:db8:1::")) for address in (of, "fe80::")]
    end = time.monotonic() + LIMIT_S
    while True:
        local = run("ip", "-6", "route", "show", "table", "local").stdout
        if all(one in local for one in own):
            return None
        if time.monotonic() > end:
            return f"the links' own addresses do not come: {local}"
        time.sleep(0.05)


class Draw:
    """Commands that add random routes."""

    def __init__(self, seed, plain):
        self.random = random.Random(seed)
        self.plain = plain  # what `route -n` shows in full

    def prefix(self, family):
        r = self.random
        if r.random() < 0.08:
            return "default"
        if family == 4:
            length = r.choice((8, 12, 16, 17, 20, 24, 24, 28, 32))
            address = 10 << 24 | r.choice((0, 1, 2, 130)) << 16 | r.choice((0, 1, 128)) << 8 | r.choice((0, 1, 16, 255))
            return str(ipaddress.ip_network((address, length), strict=False))
        length = r.choice((32, 36, 40, 48, 56, 64, 65, 127, 128))
        address = (0x20010db8 << 96 | r.choice((0x10, 0x11, 0x8000)) << 80 | r.choice((0, 1, 0x80)) << 64 |
                   r.choice((0, 1, 1 << 63)))
        return str(ipaddress.ip_network((address, length), strict=False))

    def hop(self, family):
        r = self.random
        link = r.choice(LINKS[:2])
        kind = r.random()
        if kind < 0.5:
            return f"via {r.choice(GATEWAYS[family])}"
        if kind < 0.75 and (family == 6 or not self.plain):
            word = "" if family == 6 else "inet6 "
            return f"via {word}fe80::{r.randint(1, 3)} dev {link}"
        if kind < 0.85 and family == 4:
            return f"via 10.200.0.{r.randint(1, 3)} dev {link} onlink"
        return f"dev {r.choice(LINKS)}"

    def route(self, family, number):
        r = self.random
        prefix = self.prefix(family)
        metric = f" metric {r.choice((5, 20, 100, 4294967295))}" if r.random() < 0.4 else ""
        kind = r.random()
        types = ("unreachable",) if self.plain and family == 4 else ("blackhole", "unreachable", "prohibit", "throw")
        if kind < 0.15:
            return f"route add {'unreachable' if self.plain else r.choice(types)} {prefix}{metric}"
        if self.plain or kind < 0.5:
            words = r.choice(("", " proto static", " mtu 1300", " mtu lock 1300 advmss 1200", " proto bird",
                              " expires 3000" if family == 6 else " src 192.0.2.5", " realm 5" if family == 4 else ""))
            return f"route add {prefix} {self.hop(family)}{metric}{words}"
        if kind < 0.65:
            hops = " ".join(f"nexthop {self.hop(family)} weight {r.randint(1, 4)}" for _ in range(r.randint(2, 3)))
            return f"route add {prefix}{metric} {hops}"
        if kind < 0.75:
            return f"route add {prefix} nhid {r.choice((1, 2, 3, 4, 5, 6, 8, 9))}{metric}"
        if kind < 0.8:
            return f"route append {prefix} via {r.choice(GATEWAYS[family])}{metric}"
        if kind < 0.85:
            return f"route add {prefix} {self.hop(family)} table {r.choice((100, 200))}"
        if kind < 0.9:
            # Beside a route for one source the kernel passes over one of the same prefix for all.
            return (f"route add {prefix} tos 0x10 {self.hop(family)}{metric}" if family == 4 else
                    f"route add 2001:db8:{0x4000 + number:x}::/48 from 2001:db8:7::/48 {self.hop(family)}{metric}")
        if kind < 0.95:
            # A host route: the kernel looks into the table local first, here the longest prefix of both tables wins.
            return f"route add local {'10.0.1.' if family == 4 else '2001:db8:11::'}{number} dev lo{metric}"
        return (f"route add {prefix} encap seg6 mode encap segs 2001:db8:99::1 dev e0" if family == 6 else
                f"route add {prefix} encap ip id {number} dst 192.0.2.9 dev e0")


def member_names(name):
    """The next hops of a group, without weights."""
    return {re.sub(r"\*\d+$", "", member) for member in name.split("+")}


class KernelRoutes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name) / "routes.txt"
        self.compared = 0

    def make(self, seed, plain):
        """A fresh table of both families."""
        self.assertIsNone(in_own_namespace())
        draw = Draw(seed, plain)
        objects = ["1 via 192.0.2.1 dev e0", "2 via 198.51.100.9 dev e1", "3 group 1,3/2", "4 via 2001:db8::7 dev e0",
                   "5 blackhole", "6 dev e1", "8 via fe80::9 dev e1", "9 group 4,1/8,4"]
        run("ip", "-batch", "-", text="".join(f"nexthop add id {o}\n" for o in objects))
        for family in (4, 6):
            # Some are refused: what is there is what the kernel prints.
            run("ip", f"-{family}", "-force", "-batch", "-", check=False,
                text="".join(draw.route(family, number) + "\n" for number in range(ROUTES)))
        if not plain:
            run("ip", "link", "set", "p" + LINKS[3], "down")  # linkdown
            if seed % 3 == 0:
                run("ip", "link", "set", LINKS[2], "down")  # dead

    def addresses(self, seed, family, dump):
        """Inside, at the ends of and beside what the table has."""
        draw = random.Random(seed)
        nets = [ipaddress.ip_network(word, strict=False) for line in dump.splitlines() for word in line.split()[:2]
                if re.fullmatch(r"[0-9a-f.:]+(/\d+)?", word) and ("." if family == 4 else ":") in word]
        found = set()
        size = 32 if family == 4 else 128
        while len(found) < ADDRESSES:
            net = draw.choice(nets)
            at = int(net.network_address) + draw.choice((0, draw.randrange(net.num_addresses), net.num_addresses - 1, -1,
                                                         net.num_addresses))
            at %= 1 << size
            address = (ipaddress.IPv4Address if family == 4 else ipaddress.IPv6Address)(at)
            if address.is_multicast or address.is_link_local or address.is_unspecified or at >> (size - 8) in (0, 127, 255):
                continue
            found.add(str(address))
        return sorted(found)

    def kernel(self, family, addresses):
        """By address: the next hop that the kernel takes."""
        done = run("ip", f"-{family}", "-o", "-force", "-batch", "-",
                   text="".join(f"route get {a}\n" for a in addresses), check=False)
        hops = {}
        for line in done.stdout.splitlines():
            words = line.split()
            if not words or words[0] == "cache":
                continue
            own = words[0] in ("local", "broadcast", "anycast", "multicast")
            address = words[1] if own else words[0]
            if own:
                hops[address] = "local"
                continue
            if "encap" in words:
                hops[address] = "tunnel"  # which is left out with a warning
                continue
            device = words[words.index("dev") + 1]
            via = words[words.index("via") + 1:] if "via" in words else []
            gateway = via[1] if via and via[0] == "inet6" else via[0] if via else None
            if gateway is None:
                hops[address] = device
            else:
                hops[address] = f"{gateway}%{device}" if gateway.startswith("fe80:") else gateway
        errors = {"No route to host": {"unreachable"}, "Permission denied": {"prohibit"}, "Invalid argument": {"blackhole"},
                  "Network is unreachable": {"-", "throw"}}
        said = None
        for line in done.stderr.splitlines():
            for text, names in errors.items():
                if text in line:
                    said = names
            failed = re.match(r"Command failed -:(\d+)", line)
            if failed:
                hops[addresses[int(failed.group(1)) - 1]] = said
        return hops

    def sluice(self, addresses):
        done = run(SLUICE, "route", "--quiet", "--routes", str(self.file), "--addresses", "-", text="\n".join(addresses) + "\n")
        return dict(zip(addresses, done.stdout.splitlines()))

    def compare(self, what, dump, families, whole):
        """`whole`: the dump has the host's own addresses, too."""
        self.file.write_text(dump, encoding="utf-8")
        for family, (addresses, kernel) in families.items():
            found = self.sluice(addresses)
            for address in addresses:
                right, got = kernel.get(address), found[address]
                self.assertIsNotNone(right, f"{what}: the kernel says nothing of {address}")
                if right == "tunnel":
                    continue
                if right == "local":
                    if not whole:
                        continue
                    same = got == "local"
                elif isinstance(right, set):
                    same = got in right
                else:
                    same = right in member_names(got)
                self.assertTrue(same, f"{what}: {address}: the kernel has {right}, sluice {got}; of\n{dump}")
                self.compared += 1

    def looked_up(self, seed, family):
        addresses = self.addresses(seed, family, run("ip", f"-{family}", "route", "show", "table", "all").stdout)
        return addresses, self.kernel(family, addresses)

    def test_every_form_of_ip_route(self):
        for seed in range(ROUNDS):
            self.make(seed, plain=False)
            families = {family: self.looked_up(seed, family) for family in (4, 6)}
            for words in ((), ("-d",), ("-o",), ("-o", "-d"), ("-N",), ("-j",), ("-j", "-d"), ("-s", "-d")):
                for table in ((), ("table", "all")):
                    dumps = {f: run("ip", f"-{f}", *words, "route", "show", *table).stdout for f in families}
                    for family in families:
                        what = f"seed {seed}: ip -{family} {' '.join(words)} route show {' '.join(table)}"
                        self.compare(what, dumps[family], {family: families[family]}, bool(table))
                    if "-j" not in words:
                        self.compare(f"seed {seed}: both families, {words}", dumps[4] + dumps[6], families, bool(table))
        self.assertGreater(self.compared, 1000 * ROUNDS)

    @unittest.skipIf(shutil.which("route") is None, "there is no route (net-tools)")
    def test_route_n(self):
        for seed in range(1000, 1000 + ROUNDS):
            self.make(seed, plain=True)
            for family, words in ((4, ("route", "-n")), (6, ("route", "-n", "-6"))):
                self.compare(f"seed {seed}: {' '.join(words)}", run(*words).stdout, {family: self.looked_up(seed, family)},
                             family == 6)
        self.assertGreater(self.compared, 50 * ROUNDS)


if __name__ == "__main__":
    WHY_NOT = in_own_namespace()
    if WHY_NOT:
        print("skipped:", WHY_NOT)
        sys.exit(77)
    unittest.main()
