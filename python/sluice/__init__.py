"""Sluice in Python: access lists and routes over arrays, captures as Arrow batches, and runs of whole graphs.

    acl = sluice.Acl.from_file("edge.acl")
    for batch in sluice.read_pcap("week.pcap"):
        positions = acl.classify(batch)          # the first rule that matches each packet, from 1; 0: none

Arrays are not copied, the GIL is released, and any number of threads share one table. docs/python.md is the guide.
"""
from ._captures import COLUMNS, DEFAULT_COLUMNS, PcapReader, read_pcap, schema
from ._errors import DeviceError, Error, Finding, Interrupted
from ._flows import flows
from ._run import Graph, Report, run
from ._sluice import version as _version
from ._tables import Acl, Explanation, Fib, Hits, NextHops, Rule, ShadowFinding
from ._tensors import DeviceArray

__version__ = _version()
__all__ = [
    "COLUMNS", "DEFAULT_COLUMNS", "Acl", "DeviceArray", "DeviceError", "Error", "Explanation", "Fib", "Finding", "Graph", "Hits",
    "Interrupted", "NextHops", "PcapReader", "Report", "Rule", "ShadowFinding", "__version__", "flows", "read_pcap", "run", "schema",
]  # fmt: skip
