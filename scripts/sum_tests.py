#!/usr/bin/env python3
"""Adds up a run of ./dev test: the cases in the XML files of GoogleTest and pytest plus one for each phase; the last line is the sum.

Skipped cases are listed with their reasons: no test skips silently. A results folder without a single case is a failure.
"""
import argparse
import pathlib
import sys
import xml.etree.ElementTree


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", action="append", default=[], help="folder of XML files")
    parser.add_argument("--phase", action="append", default=[], choices=["ok", "FAILED"])
    arguments = parser.parse_args()
    passed = arguments.phase.count("ok")
    failed = arguments.phase.count("FAILED")
    skipped = 0
    reasons = {}
    for folder in arguments.results:
        cases = 0
        for path in sorted(pathlib.Path(folder).glob("*.xml")):
            try:
                root = xml.etree.ElementTree.parse(path).getroot()
            except xml.etree.ElementTree.ParseError as error:
                print(f"{path}: {error}", file=sys.stderr)
                failed += 1
                continue
            for case in root.iter("testcase"):
                cases += 1
                name = f"{case.get('classname')}.{case.get('name')}"
                skip = case.find("skipped")
                if case.find("failure") is not None or case.find("error") is not None:
                    failed += 1
                    print(f"failed: {folder}: {name}")
                elif skip is not None or case.get("status") == "notrun":
                    skipped += 1
                    message = (skip.get("message") or skip.text or "") if skip is not None else "disabled"
                    lines = [line for line in message.strip().splitlines() if line.strip()]
                    reasons.setdefault(lines[-1].strip() if lines else "no reason given", []).append(name)
                else:
                    passed += 1
        if cases == 0:
            print(f"{folder}: no test case ran", file=sys.stderr)
            failed += 1
    for reason, names in sorted(reasons.items()):
        shown = ", ".join(sorted(set(names))[:5])
        print(f"skipped {len(names)}: {reason} ({shown}{', ...' if len(set(names)) > 5 else ''})")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
