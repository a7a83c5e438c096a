#!/usr/bin/env python3
"""Makes the stored measurements anew: bench/results/NAME.json, each by the command in the table below.

    measure.py --list                          what there is: group, expected seconds, command
    measure.py --group cpu                     with build/cpu; on a quiet machine
    measure.py --group peers --bin build/peers
    measure.py --only shaper,rules_cpu
    measure.py --pack DIR --bin build/cuda     a folder for a machine that has nothing: programs, their libraries, inputs
    DIR/measure.py --group gpu,host16 --bundle FILE      there; FILE holds all results, also after a stop on the way
    measure.py --unpack FILE                   here: its results go to bench/results

Groups: cpu (any machine), live (any machine; root, network namespaces; xsk, afp_fwd, xdpp and livegen in PATH), vpp (VPP_SOURCE, VPP_BUILD and
SLUICE_VPP_PLUGIN set as integrations/vpp/bench.py says; left out where they are not), peers (a build with -DSLUICE_BENCH_PEERS=ON), gpu (one CUDA device,
16 cores), host16 (16 cores, no device used); gpu-rest and host16-rest are those whose rows and commands name what was measured, so that they stay true
without being made anew; h200 needs other devices.

Inputs are the rule sets acl/*.xz and route tables rib/*.xz of a data folder (--data, or SLUICE_DATA). --generate makes sets of the
same sizes with `sluice gen` instead where it lacks them; the stored result says so.

A program that was built from changed files ("-dirty") is refused, and so is one of another revision than the first.
--allow-dirty is for trying, with --out elsewhere; --try makes every command as short as it can be.
"""
import argparse
import dataclasses
import json
import lzma
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.dont_write_bytecode = True
import result_schema
import store_result

PACKED = (HERE / "bin").is_dir()
RESULTS = HERE / "results" if PACKED else HERE.parent / "bench/results"

RIB4, RIB6 = "rib/ipv4-tier1-2024-01.nh256.txt.xz", "rib/ipv6-tier1-2024-01.nh256.txt.xz"


@dataclasses.dataclass
class Measurement:
    name: str
    group: str
    seconds: int  # about, on the machine that it is for
    command: str
    each: list = dataclasses.field(default_factory=list)  # {set} in turn; the rows follow one another
    checked: str = None  # of google-benchmark: what was compared before

    @property
    def program(self):
        return self.command.split()[0]

    @property
    def script(self):
        """Whether it is a script, which runs the program `sluice` or asks it for its revision."""
        return self.program.endswith(".py")

    @property
    def path(self):
        """Of a script: in this folder, or by its place in the source tree."""
        return (HERE.parent if "/" in self.program else HERE) / self.program

    def inputs(self):
        """The files that the commands name, as data/NAME.xz below the data folder."""
        wanted = {}
        for one in self.each or [""]:
            for word in re.split(r"[ ,]", self.command.replace("{set}", one)):
                if re.fullmatch(r"(acl|fw|ipc)[1-5]_[0-9]+k", word):
                    wanted[word] = f"acl/{word}.xz"
        if "rib4.txt" in self.command:
            wanted["rib4.txt"] = RIB4
        if "rib6.txt" in self.command:
            wanted["rib6.txt"] = RIB6
        return wanted

    def data_sets(self):
        """What a google-benchmark program reads of $SLUICE_DATA itself."""
        if self.program == "tables_benches":
            return [RIB4, RIB6]
        if self.program == "formats_benches":
            return [f"acl/{kind}1_{size}.xz" for kind in ("acl", "fw", "ipc") for size in ("1k", "10k", "100k")]
        return []


def M(name, group, seconds, command, **more):
    return Measurement(name, group, seconds, command, **more)


RESIDENT = "--device cuda --device-only"
CLASSIFY = f"sluice bench classify {RESIDENT} --mode persistent"
TRIP = "--workers 1 --flights 1 --frames 256 --frame-repetitions 20000 --repetitions 5"
SWEEP = (f"sluice bench classify --rules acl1_1k {RESIDENT} --workers 15 --repetitions 5 --frame-repetitions 400 "
         "--frames 32,128,512,2048,8192,65536")
PIPELINE_SWEEP = ("sluice bench pipeline --acl acl1_10k --routes rib4.txt --sizes 64 --device cuda --workers 16 --mode launch "
                  "--batch 32,128,512,2048,4096 --packets 2000000 --transport")
FRAMES = "sluice bench pipeline --acl acl1_10k --routes rib4.txt"
LOOKUPS = f"{RESIDENT} --lookups-only"
PRIORITIES = "sluice bench priorities --algorithm linear"
FUNCTIONS = "sluice bench functions --device cuda --packets 200000"

TABLE = [
    *[M(f"bench_pipeline_{s}", "cpu", 25, f"sluice bench pipeline --acl {s} --routes rib4.txt,rib6.txt --repetitions 25")
      for s in ("acl1_10k", "fw1_10k", "ipc1_10k")],
    *[M(f"classify_{s}", "cpu", 8 if s.endswith("100k") else 3, f"sluice bench classify --rules {s} --repetitions 7")
      for s in ("acl1_1k", "acl1_10k", "fw1_10k", "ipc1_10k", "acl1_100k", "fw1_100k", "ipc1_100k")],
    M("rules_cpu", "cpu", 120, "sluice bench classify --shape acl,fw,ipc --count 100,300,1000,3000,10000,30000,100000,300000,1000000 "
      "--algorithm tuple_merge,tuple_space --sample 2000"),
    M("route_dir24", "cpu", 15, "sluice bench route --routes rib4.txt,rib6.txt --algorithm dir24,poptrie --repetitions 7"),
    M("route_sail", "cpu", 15, "sluice bench route --routes rib4.txt,rib6.txt --algorithm sail,range24 --repetitions 7"),
    M("routes_cpu", "cpu", 180, "sluice bench route --like rib4.txt,rib6.txt --count 100,1000,10000,100000,1000000,4000000"),
    M("shaper", "cpu", 40, "sluice bench shaper --packets 8000000 --repetitions 9"),
    M("priorities_overload", "cpu", 60, f"{PRIORITIES} --part overload --workers 1 --rules 512 --repetitions 9 --seconds 2 --chunk 32"),
    M("crc32_host", "cpu", 25, "net_benches --benchmark_filter=crc32/ --benchmark_repetitions=5 --benchmark_min_time=0.05 "
      "--benchmark_enable_random_interleaving=true",
      checked="crc32_host_test: every length 0 to 9,216 equals the bitwise definition, zlib and ISA-L"),
    M("api_border", "cpu", 60, "api_benches --benchmark_filter='(classify|lookup4)/(32|64|256|4096)/' --benchmark_repetitions=15 "
      "--benchmark_enable_random_interleaving=true", checked="answers across the border equal those of the views behind it"),
    M("acl_patched", "cpu", 150, "formats_benches --benchmark_filter='acl/patched/(lookup|lookup_after_changes|lookup_at_1M_updates|"
      "lookup_at_1M_updates_elsewhere|update|update_and_lookup)/(acl1|fw1|ipc1)_(10k|100k)$' --benchmark_min_time=0.3 "
      "--benchmark_repetitions=3 --benchmark_enable_random_interleaving=true",
      checked="the builder's own tests; lookups of the runs are not compared"),
    M("acl_build", "cpu", 30, "formats_benches --benchmark_filter=acl/build --benchmark_repetitions=5 "
      "--benchmark_enable_random_interleaving=true --benchmark_min_time=0.05", checked="a sample of every set equals linear"),
    M("lpm_build", "cpu", 40, "tables_benches --benchmark_filter='build[46]/' --benchmark_repetitions=5 --benchmark_min_time=0.05",
      checked="lookups equal the trie's"),
    M("lpm_patched", "cpu", 110, "tables_benches --benchmark_filter=patched4/ --benchmark_repetitions=5 "
      "--benchmark_enable_random_interleaving=true --benchmark_min_time=0.3"),

    M("acl_peers", "peers", 100, "formats_benches --benchmark_filter=acl/lookup --benchmark_repetitions=5 --benchmark_min_time=0.3 "
      "--benchmark_enable_random_interleaving=true",
      checked="a sample of every set equals linear; rte_acl equals tuple_merge on 3,200 keys of each"),
    M("lpm_peers", "peers", 200, "tables_benches --benchmark_filter='lookup[46]|against' --benchmark_repetitions=9 "
      "--benchmark_min_time=0.05", checked="every answer of every implementation equals the trie's"),

    M("device_lookups_full_poptrie_planb", "gpu", 30,
      f"sluice bench route --routes rib4.txt,rib6.txt --packets 16777216 --algorithm poptrie,planb {LOOKUPS}"),
    M("device_lookups_full_sail_range24", "gpu", 30,
      f"sluice bench route --routes rib4.txt,rib6.txt --packets 16777216 --algorithm sail,range24 {LOOKUPS}"),
    M("device_pipeline", "gpu", 30, "sluice bench pipeline --acl acl1_10k --routes rib4.txt --sizes 64 --device cuda --mode persistent "
      "--workers 16 --repetitions 7 --packets 16000000 --batch 1024 --flights 3"),
    *[M(f"device_pipeline_sweep_{t}", "gpu", 25, f"{PIPELINE_SWEEP} {t}{records}")
      for t, records in (("commlist", ""), ("commpool", ""), ("staged", " --records key"))],
    M("device_pipeline_sweep_frames", "gpu", 35, "sluice bench pipeline --acl acl1_10k --routes rib4.txt --sizes 64 --device cuda --workers 16 "
      "--mode launch --records frame --batch 256,512,1024,2048,4096,8192 --packets 4000000"),
    *[M(f"device_frames_x{w}", "gpu", 20, "sluice bench pipeline --acl acl1_10k --routes rib4.txt --sizes 64 --device cuda --mode persistent "
        f"--records frame --workers {w} --packets 16000000 --batch 256,1024,4096,8192") for w in (1, 2, 4, 8, 16)],
    M("device_frames_launched", "gpu", 20, "sluice bench pipeline --acl acl1_10k --routes rib4.txt --sizes 64 --device cuda --mode launch "
      "--records frame --workers 2 --packets 16000000 --batch 256,1024,4096,8192"),
    *[M(f"device_frames_there_x{w}", "gpu", 20, f"{FRAMES} --sizes 64 --device cuda --mode persistent --records frame --frame-memory device "
        f"--workers {w} --packets 16000000 --batch 4096,8192") for w in (1, 2, 4, 8, 16)],
    *[M(f"host_frames_x{w}", "host16", 15, f"{FRAMES} --sizes 64 --workers {w} --packets 4000000 --batch 256") for w in (1, 2, 4, 16)],
    M("device_frames_sizes", "gpu", 40, f"{FRAMES} --sizes 64,512,1518 --device cuda --mode persistent --records frame --workers 2 "
      "--packets 12000000 --batch 8192"),
    M("host_frames_sizes", "host16", 20, f"{FRAMES} --sizes 64,512,1518 --workers 4 --packets 4000000 --batch 256"),
    M("run_ways_device", "gpu", 90, "bench_run.py --acl acl1_10k --routes rib4.txt,rib6.txt --rounds 7 --packets 200000000 --long 200000 "
      "--device cuda --name run_ways_device"),
    M("functions_ways", "gpu", 60, f"{FUNCTIONS} --function mirror,lookup,crc --sizes 64,1024 --workers 8 --batch 1024 --ways "
      "launch/commlist/full,launch/commpool/full,launch/staged/full,launch/zerocopy/full,persistent/staged/full"),
    M("functions_batch", "gpu", 40, f"{FUNCTIONS} --function mirror,crc --sizes 1024 --workers 8 --batch 32,128,512,2048,4096,8192 "
      "--ways launch/staged/full,persistent/staged/full"),
    M("functions_workers", "gpu", 25, f"{FUNCTIONS} --function mirror,crc --sizes 1024 --workers 1,4,16 --batch 1024 "
      "--ways launch/staged/full,persistent/staged/full"),
    M("functions_frames", "gpu", 40, "sluice bench functions --device cuda --packets 8000000 --function mirror,crc --sizes 64,1024 --workers 1,4 "
      "--batch 4096 --records frame --ways launch/staged/full,launch/zerocopy/full,persistent/staged/full,persistent/zerocopy/full"),
    M("functions_crc", "gpu", 60, "sluice bench functions --device cuda --function crc --sizes 64,128,256,512,1024,1518,9000 --resident "
      "--packets 400000 --workers 8 --batch 1024"),
    M("functions_chain", "gpu", 30, f"{FUNCTIONS} --function chain --sizes 64,256,1024 --workers 8 --batch 1024 "
      "--ways launch/commlist/full,launch/staged/full"),
    M("port_device", "gpu", 120, f"sluice bench port {RESIDENT} --mode launch --persistent --sizes 64 --seconds 0.3 --repetitions 7"),
    M("port_device_512", "gpu", 20, f"sluice bench port {RESIDENT} --mode launch --sizes 512 --repetitions 7"),
    M("port_latency", "gpu", 100, "sluice bench port --device cuda --mode persistent --flights 1 --batch 4,8,16,32,64,128,256 --sizes 64 "
      "--repetitions 7 --packets 1000000"),
    M("port_soak", "gpu", 70, f"sluice bench port {RESIDENT} --mode persistent --soak --seconds 60 --sizes 64"),
    M("device_soak", "gpu", 100, "sluice bench soak --minutes 1.5 --swaps 300 --workers 8 --device cuda"),

    *[M(f"device_classify_{s}_{a}", "gpu-rest", 10, f"{CLASSIFY} --rules {s} --algorithm {a} --workers 15 --repetitions 5 "
        "--frame-repetitions 2500 --frames 256,512,1024")
      for s in ("acl1_10k", "fw1_10k") for a in ("tuple_merge", "tuple_space")],
    *[M(f"device_classify_acl1_1k_{a}{'_f3' if f == 3 else ''}", "gpu-rest", 8, f"{CLASSIFY} --rules acl1_1k --algorithm {a} "
        f"--workers 15 --repetitions 5 --frame-repetitions 2500 --frames 256,512,1024 --flights {f}")
      for a in ("tuple_merge", "tuple_space") for f in (4, 3)],
    *[M(f"device_classify_{s}_tuple_merge", "gpu-rest", 15, f"{CLASSIFY} --rules {s} --algorithm tuple_merge --workers 15 "
        "--frames 1024 --frame-repetitions 1000 --sample 2000") for s in ("acl1_100k", "fw1_100k", "ipc1_100k")],
    M("device_classes_10k", "gpu-rest", 70, f"{CLASSIFY} --rules {{set}}_10k --algorithm tuple_merge --workers 1 --frames 1024 "
      "--frame-repetitions 100 --repetitions 5 --sample 2000",
      each="acl1 acl2 acl3 acl4 acl5 fw1 fw2 fw3 fw4 fw5 ipc1 ipc2".split()),
    *[M(f"device_trip_{s}_{a}", "gpu-rest", 8, f"{CLASSIFY} --rules {s} --algorithm {a} {TRIP}")
      for s, a in (("acl1_10k", "tuple_merge"), ("acl1_10k", "tuple_space"), ("acl1_1k", "tuple_merge"), ("fw1_10k", "tuple_merge"))],
    *[M(f"device_sweep_{m}_{t}", "gpu-rest", 12, f"{SWEEP} --mode {m}" + (f" --transport {t}" if m == "launch" else ""))
      for m, t in (("launch", "staged"), ("launch", "zerocopy"), ("persistent", "staged"), ("adaptive", "staged"))],
    M("device_latency", "gpu-rest", 50, "sluice bench latency --device cuda --frame-repetitions 10000 --repetitions 5 --workers 15 "
      "--frames 256,512 --flights 3"),
    M("device_rules", "gpu-rest", 120, f"{CLASSIFY} --shape acl,fw,ipc --count 100,1000,10000,100000,500000,1000000 "
      "--algorithm tuple_merge --sample 1000 --frame-repetitions 200 --frames 1024 --workers 15"),
    *[M(f"device_lookups_101_{a}", "gpu-rest", 10, f"sluice bench route --ipv4 101 --ipv6 0 --packets 10000000 --algorithm {a} {LOOKUPS}")
      for a in ("dir24", "linear", "bloom")],
    M("device_lookups_full_dir24_poptrie", "gpu-rest", 30,
      f"sluice bench route --routes rib4.txt,rib6.txt --packets 16777216 --algorithm dir24,poptrie {LOOKUPS}"),
    M("device_route", "gpu-rest", 50, f"sluice bench route --routes rib4.txt --packets 4194304 {RESIDENT} --mode persistent --workers 15 "
      "--frames 256,512,1024 --flights 4"),
    M("device_routes", "gpu-rest", 180, "sluice bench route --like rib4.txt,rib6.txt --count 100,1000,10000,100000,1000000,4000000 "
      f"--packets 4194304 {LOOKUPS}"),

    M("bench_pipeline_host16_acl1_10k", "host16", 25, "sluice bench pipeline --acl acl1_10k --routes rib4.txt --sizes 64 --repetitions 5 "
      "--packets 8000000 --workers 16 --batch 256"),
    M("run_ways", "live", 300, "bench_run.py --acl acl1_10k --routes rib4.txt,rib6.txt --rounds 15"),
    M("run_live", "host16", 350, "bench_live.py --acl acl1_10k --routes rib4.txt --xsk xsk --afp afp_fwd --rounds 7 --seconds 2"),
    M("run_captures", "host16", 40, "bench_run.py --routes rib4.txt --rounds 9 --packets 10000000 --only 'four captures' --name run_captures"),
    M("run_scale", "host16", 90, "bench_run.py --acl acl1_10k --routes rib4.txt --rounds 7 --packets 100000000 --only 'from memory' --name run_scale"),
    M("run_memory", "live", 40, "bench_run.py --routes rib4.txt --rounds 9 --only pipeline --name run_memory"),
    M("live_dpdk", "live", 95, "bench_live.py --acl acl1_10k --routes rib4.txt --testpmd dpdk-testpmd --only net_ --rounds 5 --seconds 1.5 "
      "--packets 40000000 --name live_dpdk"),
    M("live_peers", "host16", 460, "bench_live.py --flood livegen --cores 2,3 --acl acl1_10k --routes rib4.txt --xsk xsk --xsk-reads xsk_reads "
      "--afp afp_fwd --redirect xdpp --rounds 21 --seconds 1 --without 'on a core' --name live_peers"),
    M("live_latency", "live", 200, "bench_live.py --latency --routes rib4.txt --xsk xsk --wire-method af_xdp --rounds 5 --seconds 1.5"),
    M("live_overload", "live", 300, "bench_live.py --flood livegen --acl acl1_10k --routes rib4.txt --xsk xsk --afp afp_fwd --redirect xdpp --rounds 6 --seconds 1"),
    M("live_soak", "live", 310, "live_soak.py --minutes 5"),
    M("windows_cost", "live", 190, "bench_windows.py --acl acl1_10k --routes rib4.txt,rib6.txt --rounds 5 --seconds 5 --reload acl"),
    M("python_package", "live", 240, "bench_python.py --packets 100000 --rounds 5 --parts 100"),
    M("windows_effect", "live", 300, "bench_windows.py --acl acl1_10k --routes rib4.txt,rib6.txt --effect --minutes 4"),
    M("vpp_acl", "vpp", 150, "integrations/vpp/bench.py --columns acl-plugin,cpu "
      "--lists acl1_1k,acl1_10k,fw1_10k,ipc1_10k,acl1_100k,fw1_100k,ipc1_100k"),
    M("kinds_host16", "host16", 60, "sluice bench kinds --device cpu --ipv4 900000 --ipv6 160000 --repetitions 15"),
    M("functions_cpu", "host16", 60, "sluice bench functions --sizes 64,1024 --packets 1000000 --workers 1,16"),
    M("port_host", "host16", 20, "sluice bench port --workers 15 --repetitions 7"),
    M("priorities_chunks", "host16", 25, f"{PRIORITIES} --part chunks --workers 8 --rules 512 --repetitions 3 --packets 1000000"),
    M("priorities_mix", "host16", 15, f"{PRIORITIES} --part mix --workers 8 --rules 512 --packets 3000000 --repetitions 5"),
    M("priorities_workers", "host16", 25, f"{PRIORITIES} --part workers --workers 1,2,4,6,8,12 --rules 512 --packets 2000000 "
      "--repetitions 5"),
    M("priorities_overload4", "host16-rest", 35, f"{PRIORITIES} --part overload --workers 4 --chunk 32 --rules 2048 --seconds 2 "
      "--repetitions 5"),
    M("priorities_overload8", "host16-rest", 35, f"{PRIORITIES} --part overload --workers 8 --chunk 32 --rules 2048 --seconds 2 "
      "--repetitions 5"),
    M("acl_small", "host16-rest", 40, "sluice bench classify --shape acl,fw,ipc --count 64,128,256,512,1000 --algorithm tuple_merge,bitvec "
      "--repetitions 9"),
    M("acl_cache", "host16-rest", 50, "formats_benches --benchmark_filter=acl/cache --benchmark_repetitions=5 --benchmark_min_time=0.2",
      checked="the classifier's own tests; hits are counted"),
    M("counting", "host16-rest", 10, "system_benches --benchmark_filter=counting --benchmark_repetitions=5 --benchmark_min_time=0.3 "
      "--benchmark_enable_random_interleaving=true", checked="packets of the run are counted alike with and without counters by tests"),

    M("kinds_h200", "h200", 80, "sluice bench kinds --device cuda --ipv4 200000 --ipv6 50000 --sample 20000 --repetitions 5 --packets 40000000"),
    M("device_h200_classify", "h200", 15, "sluice bench classify --rules acl1_1k --algorithm tuple_space --device-only --mode persistent "
      "--workers 30 --repetitions 5 --frames 256,512,1024 --device cuda:0"),
    M("device_h200x4_one", "h200", 15, "sluice bench classify --device-only --mode persistent --rules acl1_1k --algorithm tuple_space "
      "--repetitions 7 --frame-repetitions 3000 --device cuda:0 --workers 15 --frames 512,1024"),
    M("device_h200x4_four", "h200", 15, "sluice bench classify --device-only --mode persistent --rules acl1_1k --algorithm tuple_space "
      "--repetitions 7 --frame-repetitions 3000 --device cuda:all --workers 60 --frames 512,1024"),
]


def shortened(command, emulate):
    """The command as short as its options allow: for trying it."""
    for pattern, text in ((r"--packets \d+", "--packets 20000"), (r"--repetitions \d+", "--repetitions 5"), (r"--frame-repetitions \d+", "--frame-repetitions 20"),
                          (r"--seconds [\d.]+", "--seconds 0.05"), (r"--minutes [\d.]+", "--minutes 0.02"),
                          (r"--swaps \d+", "--swaps 8"), (r"--count ([\d]+),\S+", r"--count \1"), (r"--benchmark_repetitions=\d+", "--benchmark_repetitions=1"),
                          (r"--benchmark_min_time=[\d.]+", "--benchmark_min_time=0.001"), (r"--workers (?:15|16|30|60|8)\b", "--workers 2")):
        command = re.sub(pattern, text, command)
    if command.startswith("integrations/vpp/bench.py"):
        command += " --windows 3 --packets 1024 --cases '^(first/16|acl1_1k)$'"
    if command.startswith("bench_live.py"):
        command += " --try"
    if command.startswith("bench_python.py"):
        command += " --try"
    if command.startswith("bench_run.py"):
        command = re.sub(r" --packets \d+", "", re.sub(r"--rounds \d+", "--rounds 1", command)) + " --packets 50000 --capture 10000 --long 20000 --flows 1000"
    if command.startswith("sluice"):
        if "--packets" not in command and not re.search(r"bench (soak|latency)", command):
            command += " --packets 20000"
        if re.search(r"bench (classify|route|pipeline|functions)", command) and "--sample" not in command:
            command += " --sample 500"
        if "bench shaper" in command:
            command += " --seconds 2 --real-seconds 0"
    return command.replace("cuda:all", "emu").replace("cuda:0", "emu").replace("cuda", "emu") if emulate else command


class Inputs:
    """A folder of uncompressed inputs, made as they are wanted."""

    def __init__(self, data, folder, generate, sluice):
        self.data, self.folder, self.generate, self.sluice = data, folder, generate, sluice
        self.generated = {}

    def place(self, name, source):
        target = self.folder / name
        if target.exists():
            return
        packed = self.data / source if self.data else None
        if packed and packed.is_file():
            with lzma.open(packed) as reader, open(target, "wb") as writer:
                shutil.copyfileobj(reader, writer)
            return
        if not self.generate:
            raise RuntimeError(f"no {source} in {self.data or 'the data folder'}: give --data DIR, or --generate")
        if match := re.fullmatch(r"(acl|fw|ipc)[1-5]_([0-9]+)k", name):
            words = ["gen", "rules", "--shape", match.group(1), "--count", str(int(match.group(2)) * 1000)]
        else:
            four = name == "rib4.txt"
            words = ["gen", "routes", "--ipv4", "900000" if four else "0", "--ipv6", "0" if four else "160000"]
        subprocess.run([str(self.sluice), *words, "--seed", "1", "--out", str(target)], check=True)
        self.generated[name] = "sluice " + " ".join(words) + " --seed 1"


def library_path(binaries):
    return {**os.environ, "LD_LIBRARY_PATH": str(HERE / "lib")} if PACKED else dict(os.environ)


class Absent(Exception):
    """What this machine lacks for a measurement, as a sentence: it is left out, and what is stored stays."""


class Runner:
    def __init__(self, arguments):
        self.arguments = arguments
        self.binaries = HERE / "bin" if PACKED else pathlib.Path(arguments.bin).resolve()
        self.data = pathlib.Path(arguments.data).resolve() if arguments.data else HERE / "data" if PACKED else None
        self.environment = library_path(self.binaries)
        if self.data:
            self.environment["SLUICE_DATA"] = str(self.data)
        self.folder = tempfile.TemporaryDirectory(prefix="sluice-measure-")
        self.inputs = Inputs(self.data, pathlib.Path(self.folder.name), arguments.generate, self.binaries / "sluice")
        self.revision = None

    def one(self, words):
        """stdout of one command, run where the inputs lie."""
        program = self.binaries / words[0]
        if not program.is_file():
            raise RuntimeError(f"no {program}: ninja -C {self.binaries} {words[0]}")
        done = subprocess.run([str(program), *words[1:]], cwd=self.inputs.folder, env=self.environment,
                              capture_output=True, text=True, timeout=3600)
        if done.returncode != 0:
            raise RuntimeError(f"{shlex.join(words)}: exit code {done.returncode}\n{done.stderr.strip()}")
        return done.stdout

    def document(self, m):
        for name, source in m.inputs().items():
            self.inputs.place(name, source)
        for source in m.data_sets():
            if not self.data or not (self.data / source).is_file():
                raise RuntimeError(f"no {source} in {self.data or 'the data folder'}: {m.program} reads it of SLUICE_DATA")
        command = shortened(m.command, self.arguments.emulate) if self.arguments.try_ else m.command
        if m.script:
            words = [sys.executable, str(m.path), *shlex.split(command)[1:], "--sluice", str(self.binaries / "sluice"), "--name", m.name]
            done = subprocess.run(words, cwd=self.inputs.folder, env=self.environment, capture_output=True, text=True, timeout=3600)
            if done.returncode == 77:
                raise Absent(done.stderr.strip())
            if done.returncode != 0:
                raise RuntimeError(f"{command}: exit code {done.returncode}\n{done.stderr.strip()}")
            return json.loads(done.stdout)
        if m.program != "sluice":
            raw = json.loads(self.one(shlex.split(command) + ["--benchmark_format=json"]))
            return store_result.convert(raw, m.name, None, None, m.checked, command)
        documents = [json.loads(self.one(shlex.split(command.replace("{set}", one)) + ["-q", "-o", "json", "--name", m.name]))
                     for one in m.each or [""]]
        document = documents[0]
        if m.each:
            document["results"] = [row for d in documents for row in d["results"]]
            document["command"] = f"for set in {' '.join(m.each)}; do {command.replace('{set}', '${set}')} -q -o json --name {m.name}; done"
        made = {name: how for name, how in self.inputs.generated.items() if name in m.inputs()}
        if made:
            document["generated"] = made
        return document

    def measure(self, m):
        document = self.document(m)
        problems = result_schema.problems_of(document, m.name)
        revision = document["git"]
        if not self.arguments.allow_dirty and (revision == "unknown" or revision.endswith("-dirty")):
            problems.append(f"{m.program} is of revision {revision}: build it from a clean tree")
        self.revision = self.revision or revision
        if revision != self.revision:
            problems.append(f"{m.program} is of revision {revision}, the others of {self.revision}")
        if problems:
            raise RuntimeError("; ".join(problems))
        return document


def choose(arguments):
    names = {m.name for m in TABLE}
    if len(names) != len(TABLE):
        raise RuntimeError("a name is in the table twice")
    wanted = [n for n in arguments.only.split(",") if n]
    groups = [g for g in arguments.group.split(",") if g]
    for unknown in [n for n in wanted if n not in names] + [g for g in groups if g not in {m.group for m in TABLE}]:
        raise RuntimeError(f"there is no '{unknown}': see --list")
    chosen = [m for m in TABLE if m.name in wanted or m.group in groups]
    if arguments.start:
        at = [m.name for m in chosen].index(arguments.start)
        chosen = chosen[at:]
    return chosen


def pack(arguments):
    """A folder that runs by itself: programs, the libraries that they name but those of the C and C++ runtime, inputs."""
    target = pathlib.Path(arguments.pack)
    for folder in ("bin", "lib", "data/acl", "data/rib"):
        (target / folder).mkdir(parents=True, exist_ok=True)
    chosen = choose(arguments)
    if bound := [m.name for m in chosen if "/" in m.program]:
        raise RuntimeError(f"{','.join(bound)}: measured where its script's folder is, and not packed")
    chosen = chosen or [m for m in TABLE if m.group in ("gpu", "gpu-rest", "host16", "host16-rest")]
    for name in ("measure.py", "store_result.py", "result_schema.py", "rounds.py", *{m.program for m in chosen if m.script}):
        shutil.copy(HERE / name, target / name)
    programs = {"sluice" if m.script else m.program for m in chosen}
    # `sluice bench` is a program of its own, found beside it.
    for program in sorted(programs | ({"sluice-bench"} if "sluice" in programs else set())):
        source = pathlib.Path(arguments.bin) / program
        if not source.is_file():
            raise RuntimeError(f"no {source}: ninja -C {arguments.bin} {program}")
        subprocess.run(["strip", "-o", str(target / "bin" / program), str(source)], check=True)
        for line in subprocess.run(["ldd", str(source)], capture_output=True, text=True, check=True).stdout.splitlines():
            if match := re.search(r"=> (/\S+)", line):
                library = pathlib.Path(match.group(1))
                if not re.match(r"(libc|libm|libdl|librt|libpthread|libresolv|libgcc_s|ld-linux.*|libstdc\+\+)\.so", library.name):
                    shutil.copy(library, target / "lib" / library.name)
    for source in sorted({s for m in chosen for s in [*m.inputs().values(), *m.data_sets()]}):
        if not arguments.data or not (pathlib.Path(arguments.data) / source).is_file():
            raise RuntimeError(f"no {source}: give --data DIR")
        shutil.copy(pathlib.Path(arguments.data) / source, target / "data" / source)
    size = sum(f.stat().st_size for f in target.rglob("*") if f.is_file())
    print(f"packed {target}: {size / 2**20:.1f} MiB for {len(chosen)} measurements")


def unpack(bundle):
    for name, document in json.loads(pathlib.Path(bundle).read_text()).items():
        problems = result_schema.problems_of(document, name)
        if problems:
            raise RuntimeError(f"{name}: {'; '.join(problems)}")
        if document["git"].endswith("-dirty"):
            raise RuntimeError(f"{name} is of revision {document['git']}")
        (RESULTS / f"{name}.json").write_text(result_schema.text_of(document), encoding="utf-8")
        print(f"wrote {RESULTS / name}.json")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--only", default="", help="names, by commas")
    parser.add_argument("--group", default="", help="groups, by commas")
    parser.add_argument("--from", dest="start", help="leave out what comes before this name")
    parser.add_argument("--budget", type=float, help="seconds: what would not fit any more is left for another call, and named")
    parser.add_argument("--bin", default="build/cpu", help="the folder of the built programs")
    parser.add_argument("--data", default=os.environ.get("SLUICE_DATA"))
    parser.add_argument("--generate", action="store_true")
    parser.add_argument("--out", default=str(RESULTS), help="folder of NAME.json")
    parser.add_argument("--bundle", help="also all results in one file, which --unpack reads")
    parser.add_argument("--pack", metavar="DIR")
    parser.add_argument("--unpack", metavar="FILE")
    parser.add_argument("--allow-dirty", action="store_true")
    parser.add_argument("--try", dest="try_", action="store_true")
    parser.add_argument("--emulate", action="store_true", help="with --try: the emulated device in a CUDA device's place")
    arguments = parser.parse_args()
    try:
        if arguments.unpack:
            unpack(arguments.unpack)
            return 0
        if arguments.pack:
            pack(arguments)
            return 0
        chosen = choose(arguments)
        if arguments.list:
            for m in chosen or TABLE:
                print(f"{m.group:12} {m.seconds:4} s  {m.name}\n    {m.command}")
            total = sum(m.seconds for m in chosen or TABLE)
            print(f"{len(chosen or TABLE)} measurements, about {total / 60:.0f} minutes")
            return 0
        if not chosen:
            raise RuntimeError("nothing is chosen: --group, --only, or --list")
        out = pathlib.Path(arguments.out)
        if (arguments.allow_dirty or arguments.try_) and out.resolve() == RESULTS.resolve():
            raise RuntimeError("--allow-dirty and --try are for trying: give --out a folder of its own")
        arguments.allow_dirty |= arguments.try_
        out.mkdir(parents=True, exist_ok=True)
        runner = Runner(arguments)
    except (RuntimeError, OSError, ValueError, subprocess.CalledProcessError) as error:
        print(f"measure: {error}", file=sys.stderr)
        return 1
    bundle = {}
    failed, left_out = [], []
    begin = time.monotonic()
    for i, m in enumerate(chosen):
        if arguments.budget and time.monotonic() - begin + m.seconds > arguments.budget:
            print(f"measure: the budget is used up; go on with --from {m.name}", file=sys.stderr)
            break
        start = time.monotonic()
        try:
            document = runner.measure(m)
        except Absent as what:
            print(f"{m.name} left out: {what}", file=sys.stderr, flush=True)
            left_out.append(m.name)
            continue
        except (RuntimeError, ValueError, KeyError, OSError, subprocess.SubprocessError) as error:
            print(f"{m.name} FAILED: {error}", file=sys.stderr, flush=True)
            failed.append(m.name)
            continue
        (out / f"{m.name}.json").write_text(result_schema.text_of(document), encoding="utf-8")
        bundle[m.name] = document
        if arguments.bundle:
            pathlib.Path(arguments.bundle).write_text(json.dumps(bundle, ensure_ascii=False))
        print(f"{i + 1:3}/{len(chosen)} {time.monotonic() - start:6.1f} s (about {m.seconds})  {m.name}: {len(document['results'])} rows",
              flush=True)
    print(f"measure: {len(bundle)} measured, {len(failed)} failed{': ' + ','.join(failed) if failed else ''}; "
          f"{len(left_out)} left out{': ' + ','.join(left_out) if left_out else ''}; "
          f"{time.monotonic() - begin:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
