#!/usr/bin/env python3
"""Whether the plug-in compiles against VPP's source trees, without building VPP: a minute a tree.

    integrations/vpp/tests/compile_against.py --sluice build/cpu/libsluice.so TREE [TREE ...]

Of each tree CMake is run, and the headers alone are generated that the plug-in includes: those of the API's types, and
the version's. Compiler warnings are errors; a function that a VPP does not declare is one. What is compiled is not run:
that takes a VPP that is built (test_gpu_classify.py)."""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
HEADERS = [f"CMakeFiles/vnet/{name}.api.h" for name in ("interface_types", "ip/ip_types", "ethernet/ethernet_types")] + ["CMakeFiles/vpp/app/version.h"]


def run(*words):
    done = subprocess.run(list(map(str, words)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, words))}\n{done.stdout[-6000:]}")


def compile_against(tree, library, compiler):
    """The version of the tree. Raises RuntimeError with what the compiler says."""
    with tempfile.TemporaryDirectory(prefix="sluice_vpp") as folder:
        vpp, plugin = pathlib.Path(folder) / "vpp", pathlib.Path(folder) / "plugin"
        with_compiler = ("-G", "Ninja", f"-DCMAKE_C_COMPILER={compiler}")
        run("cmake", *with_compiler, "-S", tree / "src", "-B", vpp, "-DCMAKE_BUILD_TYPE=release", "-DVPP_BUILD_NATIVE_ONLY=ON")
        run("ninja", "-C", vpp, *HEADERS)
        run("cmake", *with_compiler, "-S", HERE.parent, "-B", plugin, f"-DVPP_SOURCE={tree}", f"-DVPP_BUILD={vpp}", f"-DSLUICE_LIBRARY={library}")
        run("ninja", "-C", plugin)
        return re.search(r'VPP_BUILD_VER "?([^"\s]+)', (vpp / HEADERS[-1]).read_text())[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trees", nargs="+", type=lambda p: pathlib.Path(p).resolve(), metavar="TREE")
    parser.add_argument("--sluice", required=True, type=lambda p: pathlib.Path(p).resolve(), help="libsluice.so")
    parser.add_argument("--compiler", default="clang", help="default %(default)s")
    options = parser.parse_args()
    failed = 0
    for tree in options.trees:
        try:
            print(f"{tree}: compiles against VPP {compile_against(tree, options.sluice, options.compiler)}", flush=True)
        except RuntimeError as error:
            failed += 1
            print(f"{tree}: {error}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
