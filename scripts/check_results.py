#!/usr/bin/env python3
"""Fails where a stored measurement (bench/results/*.json) is not one of the program as it stands:

- its revision ends in "-dirty" or is unknown: nobody can build that program again;
- a default that its command left standing (its `defaults`, which `sluice bench` writes) is another one today: an option's
  default, what `auto` chooses for access lists, the route algorithms. The command would measure something else now;
- it says nothing of its defaults, and neither its command (--algorithm) nor every one of its rows names the algorithm;
- it is not in the table of scripts/measure.py, or the other way round.

Micro-benchmarks have no defaults: their rows name what they measure. Today's defaults are what the built program says
(`sluice reference --defaults`). Each finding names the command that makes the result anew.
"""
import argparse
import json
import pathlib
import re
import sys

import gen_reference
import measure
import result_schema

# Where a row's name holds an algorithm's: "acl1_1k/tuple_space/x1", "1 rules, 1 mask, first, linear".
PARTS = re.compile(r"/|, ")


def names_algorithm(document, algorithms):
    if re.search(r"--algorithm[ =]", document.get("command") or ""):
        return True
    return all(set(PARTS.split(row["case"])) & algorithms for row in document["results"])


def problems_of(document, today):
    """What is untrue of a stored document, as a list of sentences."""
    found = []
    if document["git"] == "unknown" or document["git"].endswith("-dirty"):
        found.append(f"its revision is {document['git']}")
    command = document.get("command") or ""
    match = re.search(r"\bsluice bench (\w+)", command)
    if not match:
        return found
    left = document.get("defaults")
    if left is None:
        if not names_algorithm(document, set(today["algorithms"])):
            found.append("it says nothing of the defaults that its command left standing")
        return found
    options = today["bench"].get(match.group(1))
    if options is None:
        return found + [f"there is no 'sluice bench {match.group(1)}' any more"]
    now = {**{key: value for key, value in today.items() if isinstance(value, str)}, **options}
    then = {**{key: value for key, value in left.items() if isinstance(value, str)}, **left.get("options", {})}
    for key, value in then.items():
        if key in now and now[key] != value:
            found.append(f"the default of {key} was '{value}' and is '{now[key]}'")
    return found


def check(results, names, today):
    """[(name, sentence)] of all stored documents."""
    found = []
    stored = result_schema.stored(results)
    for path in stored:
        found += [(path.stem, said) for said in problems_of(result_schema.read(path), today)]
    have = {path.stem for path in stored}
    found += [(name, "scripts/measure.py does not know how it was made") for name in sorted(have - names)]
    found += [(name, "scripts/measure.py makes it, and it is not stored") for name in sorted(names - have)]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, help="default: the newer of build/ci/sluice and build/cpu/sluice")
    arguments = parser.parse_args()
    binary = arguments.binary or gen_reference.find_binary()
    if binary is None:
        print("check_results: today's defaults come from the built program: run ./dev build first", file=sys.stderr)
        return 1
    try:
        today = json.loads(gen_reference.say(binary, "reference", "--defaults"))
        found = check(result_schema.ROOT / "bench/results", {m.name for m in measure.TABLE}, today)
    except (OSError, ValueError) as error:
        print(f"check_results: {error}", file=sys.stderr)
        return 1
    for name, said in found:
        print(f"bench/results/{name}.json: {said}; make it anew: scripts/measure.py --only {name}", file=sys.stderr)
    print(f"results: {len(found)} problems in {len({name for name, _ in found})} of {len(measure.TABLE)}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
