"""In a VPP's place, where there is none: what bench.py asks for, answered as VPP 25.10 does, and rules looked up one by one.

`make` lays out a source tree, a build folder and a plug-in's build folder that vpp_process.py takes for the real ones.
FAKE_VPP of the environment names what goes wrong: `counts` (a packet is counted by another rule), `frames` (one of 128),
`plugin` (the plug-in is not loaded), `dies` (VPP ends at once), `list` (the acl-plugin takes no list)."""
import json
import os
import pathlib
import signal
import struct
import sys

HERE = pathlib.Path(__file__).resolve().parent
CLOCKS_PER_PACKET = {"sluice-classify-ip4": 40.0, "acl-plugin-in-ip4-fa": 120.0}
CLOCKS_PER_SECOND = 2.0e9
REVISION = "a1b2c3d"

PAPI = """
import json, pathlib
class VPPApiClient:
    def __init__(self, apifiles, server_address):
        self.state, self.api = pathlib.Path(server_address).with_name("state.json"), self
    def connect(self, name): pass
    def disconnect(self): pass
    def acl_stats_intf_counters_enable(self, enable):
        state = json.loads(self.state.read_text())
        state["counting"] = enable
        self.state.write_text(json.dumps(state))
"""
STATISTICS = """
import json, pathlib
class VPPStats:
    def __init__(self, socketname): self.state = pathlib.Path(socketname).with_name("state.json")
    def connect(self): pass
    def disconnect(self): pass
    def __getitem__(self, name):
        assert name == "/acl/0/matches", name
        state = json.loads(self.state.read_text())
        return [[(state["counters"].get(str(i + 1), 0), 0) for i in range(state["size"] + 1)]]
"""


def make(folder):
    """The environment of a bench.py that measures this."""
    source, build, plugin = (pathlib.Path(folder) / name for name in ("source", "build", "plugin"))
    files = {source / "src/vlib/vlib.h": "", build / "CMakeCache.txt": "CMAKE_BUILD_TYPE:STRING=release\n",
             plugin / "vpp_plugins/sluice_plugin.so": "", plugin / "sluice.api.json": "{}",
             source / "src/vpp-api/python/vpp_papi/__init__.py": PAPI, source / "src/vpp-api/python/vpp_papi/vpp_stats.py": STATISTICS}
    for program in ("vpp", "vppctl"):
        files[build / "bin" / program] = f"#!/bin/sh\nexec '{sys.executable}' -IS '{HERE}/fake_vpp.py' {program} \"$@\"\n"
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for program in ("vpp", "vppctl"):
        (build / "bin" / program).chmod(0o755)
    return {"VPP_SOURCE": str(source), "VPP_BUILD": str(build), "SLUICE_VPP_PLUGIN": str(plugin)}


def wrong(what):
    return os.environ.get("FAKE_VPP") == what


def vpp(arguments):
    conf = pathlib.Path(arguments[arguments.index("-c") + 1])
    if wrong("dies"):
        print("the heap has no room")
        sys.exit(3)
    text = conf.read_text()
    plugins = [p for p in ("acl", "sluice") if f"plugin {p}_plugin.so {{ enable }}" in text and not (p == "sluice" and wrong("plugin"))]
    (conf.parent / "state.json").write_text(json.dumps({"plugins": plugins, "streams": {}, "counters": {}, "size": 0, "rules": "",
                                                        "calls": 0, "vectors": 0, "counting": "sluice" in plugins}))
    (conf.parent / "cli.sock").touch()
    while True:
        signal.pause()


def keys_of(path):
    data, at = pathlib.Path(path).read_bytes(), 24
    while at < len(data):
        length = struct.unpack_from("<I", data, at + 8)[0]
        packet = data[at + 16:at + 16 + length]
        protocol, src, dst = packet[23], *struct.unpack_from("!II", packet, 26)
        sport, dport = struct.unpack_from("!HH", packet, 34) if protocol in (6, 17) else (0, 0)
        yield src, dst, protocol, sport, dport, packet[47] if protocol == 6 else 0
        at += 16 + length


def matches(line, key):
    """Of a ClassBench line, word by word."""
    words = line.lstrip("@").split()
    def inside(address, prefix):
        base, length = prefix.split("/")
        value = int.from_bytes(bytes(map(int, base.split("."))), "big")
        return address >> (32 - int(length)) == value >> (32 - int(length))
    value, mask = (int(x, 16) for x in words[8].split("/"))
    flags, flags_mask = (int(x, 16) >> 8 for x in words[9].split("/"))
    return (inside(key[0], words[0]) and inside(key[1], words[1]) and int(words[2]) <= key[3] <= int(words[4])
            and int(words[5]) <= key[4] <= int(words[7]) and key[2] & mask == value & mask and key[5] & flags_mask == flags)


def forward(state, stream):
    keys = list(keys_of(stream["file"]))
    state["vectors"] += stream["limit"]
    state["calls"] += -(-stream["limit"] // 256) + (1 if wrong("frames") else 0)
    if not state["counting"] or len(keys) != stream["limit"]:  # a measurement repeats its capture
        return
    lines = state["rules"].splitlines()
    for key in keys:
        position = next((i for i, line in enumerate(lines, 1) if matches(line, key)), 0)
        if wrong("counts"):
            position += 1
        if position:
            state["counters"][str(position)] = state["counters"].get(str(position), 0) + 1


def answer(command, state):
    words = command.split()
    sluice = "sluice" in state["plugins"]
    if command == "show version":
        return "vpp v25.10-fake"
    if command == "show plugins":
        return "\n".join(f" {i}. {p}_plugin.so  25.10-fake" for i, p in enumerate(state["plugins"], 1))
    if command == "show clock verbose":
        return f"Time now 1.0\n error 0, clocks/sec {CLOCKS_PER_SECOND:.6f}, GMT"
    if command == "show runtime":
        node = "sluice-classify-ip4" if sluice else "acl-plugin-in-ip4-fa"
        calls, vectors = state["calls"], state["vectors"]
        return f"{node}  active  {calls}  {vectors}  0  {CLOCKS_PER_PACKET[node]:.2e}  {vectors / max(calls, 1):.2f}"
    if command == "clear runtime":
        state["calls"] = state["vectors"] = 0
    elif command == "show logging":
        return "plugin/load: sluice_plugin.so: undefined symbol: sluice_acl_open" if wrong("plugin") else ""
    elif words[:2] == ["packet-generator", "new"]:
        state["streams"][words[words.index("name") + 1]] = {"file": words[3], "limit": int(words[words.index("limit") + 1]), "on": False}
    elif words[:2] == ["packet-generator", "enable-stream"]:
        for name in words[2:] or list(state["streams"]):
            forward(state, state["streams"][name])
    elif words[:2] == ["packet-generator", "delete"]:
        del state["streams"][words[2]]
    elif words[:2] == ["gpu-classify", "file"] and sluice:
        state["rules"] = pathlib.Path(words[2]).read_text()
    elif command == "show gpu-classify" and sluice:
        return f"libsluice 0.1.0 ({REVISION})\n1 rules, generation 2, algorithm tuple_merge, 1 tables, 0 slots, 0 bytes\ndefault pass"
    elif command == "show gpu-classify rules" and sluice:
        head = "    rule        packets            bytes  text\n"
        return head + "\n".join(f"{i} {n} 0 permit (rules:{i})" for i, n in state["counters"].items()) + "\n    none 0 0"
    elif command == "show gpu-classify latency" and sluice:
        return "stage  frames  p50  p99  p99.9\nlook up  10  1.50  2.00  3.00"
    elif words[0] == "exec":
        # `permit src A dst B proto 6 sport 1-2 dport 3-4 ...`, as ClassBench has it.
        rules = []
        for rule in pathlib.Path(words[1]).read_text().split("acl ", 1)[1].split(", "):
            w = rule.split()
            at = lambda k, default: w[w.index(k) + 1] if k in w else default  # noqa: E731
            ports = [at(k, "0-65535").replace("-", " : ") for k in ("sport", "dport")]
            protocol = f"0x{int(at('proto', '0')):02x}/0x{0xff if 'proto' in w else 0:02x}"
            flags = f"0x{int(at('tcpflags', '0')):02x}00/0x{int(at('mask', '0')):02x}00"
            rules.append(f"@{at('src', '')} {at('dst', '')} {' '.join(ports)} {protocol} {flags}")
        state["rules"], state["size"] = "\n".join(rules), len(rules)
    elif command == "show acl-plugin acl index 0":
        return "" if wrong("list") else f"acl-index 0 count {state['size']} tag {{cli}}"
    elif words[0] not in ("create", "set", "ip", "packet-generator", "gpu-classify"):
        return f"unknown input '{command}'"
    return ""


def vppctl(arguments):
    path = pathlib.Path(arguments[arguments.index("-s") + 1]).with_name("state.json")
    state = json.loads(path.read_text())
    print(answer(arguments[-1], state))
    path.write_text(json.dumps(state))


if __name__ == "__main__":
    {"vpp": vpp, "vppctl": vppctl}[sys.argv[1]](sys.argv[2:])
