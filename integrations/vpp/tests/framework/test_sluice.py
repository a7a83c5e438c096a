"""The cases of test_gpu_classify.py in VPP's own test framework: run_tests.py of a VPP tree finds them here.

How to run them is in README.md."""
import pathlib
import sys
import unittest

from framework import VppTestCase

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import test_gpu_classify as cases  # noqa: E402


class FrameworkVpp(cases.Forwarding):
    """A VPP that the framework has started, as the cases see one; and for the framework, its process."""

    def __init__(self, process, folder, vapi):
        self.process, self.folder, self.vapi = process, pathlib.Path(folder), vapi

    def __getattr__(self, name):
        return getattr(self.process, name)

    def cli(self, command, within=None):
        # Also where it fails: the text is what is tested.
        return self.vapi.papi.cli_inband(cmd=command).reply.replace("\r", "").strip("\n")


class TestSluice(VppTestCase):
    """Access lists of Sluice"""

    device = cases.Rules.device

    @classmethod
    def setUpConstants(cls):
        super().setUpConstants()
        # The plug-in `unittest` knows this word, and a VPP may be built without it.
        if "api-fuzz {" in cls.vpp_cmdline:
            at = cls.vpp_cmdline.index("api-fuzz {")
            del cls.vpp_cmdline[at:at + 3]

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        try:
            cls.lent = FrameworkVpp(cls.vpp, cls.tempdir, cls.vapi)
            cls.lent.set_up()
        except BaseException:
            super().tearDownClass()
            raise

    def setUp(self):
        super().setUp()
        self.vpp = self.lent
        cases.Rules.setUp(self)

    def tearDown(self):
        cases.Rules.tearDown(self)
        super().tearDown()


class TestSluiceDevice(TestSluice):
    """Access lists of Sluice, by a device"""

    device = cases.Device.device


def lend(theirs, ours):
    """What a class of cases has, but how it starts and ends."""
    for name, what in vars(ours).items():
        if not name.startswith("__") and name not in ("setUpClass", "setUp", "tearDown", "device", "workers"):
            setattr(theirs, name, what)


lend(TestSluice, cases.Rules)
lend(TestSluiceDevice, cases.Device)

if __name__ == "__main__":
    unittest.main()
