#!/usr/bin/env python3
"""The VPP plug-in compiles against the VPP of this machine, and its tests pass in it.

    vpp_plugin_test.py BUILD

VPP is a source tree and its build folder (VPP_SOURCE, VPP_BUILD) or an installed vpp-dev; without either this ends with
77, which CTest counts as skipped. Where that VPP can run (it has bin/vpp), the plug-in's tests run too."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    source, vpp = os.environ.get("VPP_SOURCE"), os.environ.get("VPP_BUILD")
    if not (source and vpp) and not (pathlib.Path("/usr/include/vlib/vlib.h").exists() and shutil.which("vppapigen")):
        print("skipped: no VPP here: VPP_SOURCE and VPP_BUILD are not set, and vpp-dev is not installed")
        return 77
    with tempfile.TemporaryDirectory(prefix="sluice_vpp") as folder:
        options = [f"-DVPP_SOURCE={source}", f"-DVPP_BUILD={vpp}"] if source and vpp else []
        for command in (["cmake", "-G", "Ninja", "-S", ROOT / "integrations/vpp", "-B", folder,
                         f"-DSLUICE_LIBRARY={build}/libsluice.so", *options], ["cmake", "--build", folder, "--target", "all", "sluice_probe"]):
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=900)
            if done.returncode != 0:
                print(done.stdout + done.stderr)
                return 1
        if not (vpp and (pathlib.Path(vpp) / "bin/vpp").exists()):
            print("compiled; this VPP has no bin/vpp to run it in")
            return 0
        environment = dict(os.environ, SLUICE_VPP_PLUGIN=folder)
        done = subprocess.run([sys.executable, ROOT / "integrations/vpp/tests/test_gpu_classify.py"], env=environment,
                              timeout=1500)
        if done.returncode == 77:
            return 0  # compiled; what is missing has been printed
        return done.returncode


if __name__ == "__main__":
    sys.exit(main())
