#!/usr/bin/env python3
"""Copies a skeleton under a new name: ./dev new element|lpm|acl NAME.

The skeleton is a folder `example` that the build compiles and tests like any other. Inside the copy, in contents and in
file names, example becomes NAME, Example becomes CamelCase(NAME) and EXAMPLE becomes UPPER_CASE(NAME). Lines elsewhere
in the tree that register the skeleton are shown, because the new folder needs the same line.
"""
import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SKELETONS = {"element": "src/elements/example", "lpm": "src/tables/lpm/example", "acl": "src/tables/acl/example"}
WORD = re.compile(r"EXAMPLE|Example|example")


def rename(text, name):
    forms = {"example": name, "Example": "".join(part.capitalize() for part in name.split("_")), "EXAMPLE": name.upper()}
    return WORD.sub(lambda match: forms[match.group()], text)


def copy(root, kind, name):
    """The files written and the lines to add elsewhere. Raises ValueError with a message for the user."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name):
        raise ValueError(f"'{name}' is no snake_case name: lower-case letters, digits and single underscores")
    if name == "example":
        raise ValueError("'example' is the skeleton itself")
    source = root / SKELETONS[kind]
    target = source.parent / name
    if not source.is_dir():
        raise ValueError(f"there is no skeleton {SKELETONS[kind]}/")
    if target.exists():
        raise ValueError(f"{target.relative_to(root)} exists already")
    written = []
    for path in sorted(source.rglob("*")):
        if path.is_file():
            copied = target / rename(str(path.relative_to(source)), name)
            copied.parent.mkdir(parents=True, exist_ok=True)
            copied.write_text(rename(path.read_text(encoding="utf-8"), name), encoding="utf-8")
            written.append(str(copied.relative_to(root)))
    lines = []
    marks = (str(source.relative_to(root / "src")) + "/",
             "Example" + {"element": "", "lpm": "Lpm", "acl": "Acl"}[kind])
    for path in sorted((root / "src").rglob("*")):
        if path.suffix not in (".h", ".cpp", ".cu") or source in path.parents or target in path.parents:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            if any(mark in line for mark in marks):
                lines.append(f"{path.relative_to(root)}:{number}: {rename(line.strip(), name)}")
    return written, lines


def main():
    parser = argparse.ArgumentParser(prog="./dev new", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=sorted(SKELETONS))
    parser.add_argument("name")
    arguments = parser.parse_args()
    try:
        written, lines = copy(ROOT, arguments.kind, arguments.name)
    except ValueError as error:
        print(f"new: {error}", file=sys.stderr)
        return 1
    for name in written:
        print(f"wrote {name}")
    if lines:
        print("now add, beside the skeleton's line:")
        for line in lines:
            print(f"  {line}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
