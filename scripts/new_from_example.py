#!/usr/bin/env python3
"""Copies a skeleton under a new name: ./dev new element|flow|tunnel|table|lpm|acl|port NAME.

The skeleton is a folder `example` (of a flow `example_flow`, and so on) that the build compiles and tests like any other; of
a method of live ports it is `tap`, the shortest one. Inside the copy, in contents and in file names, example becomes NAME,
Example becomes CamelCase(NAME) and EXAMPLE becomes UPPER_CASE(NAME). The copy is then added to the lists that the build and the tests go by; each line that
changed is shown.
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SKELETONS = {"element": "src/elements/example", "flow": "src/elements/example_flow", "tunnel": "src/elements/example_tunnel",
             "table": "src/elements/example_table", "lpm": "src/tables/lpm/example", "acl": "src/tables/acl/example",
             "port": "src/ports/tap"}
# A member of that name (`c.example`) is not the skeleton's name, nor is the kernel's word for an interface.
TAP = re.compile(r"(?<![A-Z])Tap(?=[A-Z,])|(?<![a-z])(?<!mode )tap(?![a-z])")
# The longest name: of an algorithm in an image, and of an interface that a test makes.
LONGEST = {"lpm": (8, "the 8 bytes that an image has for the name of an algorithm"),
           "acl": (8, "the 8 bytes that an image has for the name of an algorithm"),
           "port": (14, "the 15 bytes of an interface's name, with a digit, that a test makes")}
STAGE = [
    ("src/elements/stages.h", '#include "elements/example/stage.h"\n|', '#include "elements/{name}/stage.h"\n'),
    ("src/elements/stages.h", "each on a line of its own.\n|", "             {Name}Stage,  //\n"),
]
ELEMENT = ("src/elements/elements.inc", "\nSLUICE_ELEMENT(get_ip_address)\n|", "SLUICE_ELEMENT({name})\n")
# Where a copy is listed: a file, what stands there (the place is at `|`), and what is put there for the copy.
LISTS = {
    "element": [*STAGE, ELEMENT],
    "flow": [ELEMENT],
    "tunnel": [*STAGE, ELEMENT],
    "table": [*STAGE, ELEMENT],
    "lpm": [
        ("src/tables/lpm/algorithms.h", '#include "tables/lpm/example/example.h"\n|',
         '#include "tables/lpm/{name}/{name}.h"\n'),
        ("src/tables/lpm/algorithms.h", ", ExampleLpm|", ", {Name}Lpm"),
    ],
    "acl": [
        ("src/tables/acl/algorithms.h", '#include "tables/acl/example/example.h"\n|',
         '#include "tables/acl/{name}/{name}.h"\n'),
        ("src/tables/acl/algorithms.h", ", ExampleAcl|", ", {Name}Acl"),
    ],
    "port": [
        ("src/ports/methods.inc", "open_tap_port, examine_tap, false)\n|", 'SLUICE_PORT_METHOD(k{Name}, "{name}", open_{name}_port, examine_{name}, false)\n'),
        ("src/ports/live_port_test.cpp", 'makes("tap", PortMethod::kTap, "tap7"),\n|', '    makes("{name}", PortMethod::k{Name}, "{name}7"),\n'),
        ("src/elements/device/element.cpp", '"af_packet", "tap"|', ', "{name}"'),
    ],
}


def camel_case(name):
    return "".join(part.capitalize() for part in name.split("_"))


def rename(text, name, kind):
    camel = camel_case(name)
    if kind == "port":
        return TAP.sub(lambda match: name if match.group() == "tap" else camel, text)
    source = pathlib.Path(SKELETONS[kind]).name
    forms = {source: name, camel_case(source): camel, source.upper(): name.upper()}
    word = re.compile(rf"{source.upper()}|{camel_case(source)}|(?<!\.){source}")
    return word.sub(lambda match: forms[match.group()], text)


def lists_with(root, kind, name):
    """The lists' new text by file, and FILE:LINE: TEXT of each change. Raises ValueError where a list is not found."""
    texts, shown = {}, []
    for file, place, put in LISTS[kind]:
        text = texts.get(file) or (root / file).read_text(encoding="utf-8")
        before, after = place.split("|")
        if text.count(before + after) != 1:
            raise ValueError(f"{file}: '{(before + after).strip()}' stands there {text.count(before + after)} times, not once")
        at = text.index(before + after) + len(before)
        added = put.format(name=name, Name=camel_case(name))
        texts[file] = text[:at] + added + text[at:]
        shown.append(f"{file}:{text.count(chr(10), 0, at) + 1}: {added.strip(' ,' + chr(10))}")
    return texts, shown


def copy(root, kind, name):
    """The files written and the changes to lists. Raises ValueError with a message for the user; then nothing is written."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name):
        raise ValueError(f"'{name}' is no snake_case name: lower-case letters, digits and single underscores")
    source = root / SKELETONS[kind]
    if name == source.name:
        raise ValueError(f"'{name}' is the skeleton itself")
    if kind in LONGEST and len(name) > LONGEST[kind][0]:
        raise ValueError(f"'{name}' is longer than {LONGEST[kind][1]}")
    target = source.parent / name
    if not source.is_dir():
        raise ValueError(f"there is no skeleton {SKELETONS[kind]}/")
    if target.exists():
        raise ValueError(f"{target.relative_to(root)} exists already")
    texts, shown = lists_with(root, kind, name)
    written = []
    for path in sorted(source.rglob("*")):
        if path.is_file():
            copied = target / rename(str(path.relative_to(source)), name, kind)
            copied.parent.mkdir(parents=True, exist_ok=True)
            copied.write_text(rename(path.read_text(encoding="utf-8"), name, kind), encoding="utf-8")
            written.append(str(copied.relative_to(root)))
    for file, text in texts.items():
        (root / file).write_text(text, encoding="utf-8")
    return written, shown


def main():
    parser = argparse.ArgumentParser(prog="./dev new", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=sorted(SKELETONS))
    parser.add_argument("name")
    arguments = parser.parse_args()
    try:
        written, shown = copy(ROOT, arguments.kind, arguments.name)
    except ValueError as error:
        print(f"new: {error}", file=sys.stderr)
        return 1
    for name in written:
        print(f"wrote {name}")
    for line in shown:
        print(f"added {line}")
    formatter = shutil.which("clang-format-14") or shutil.which("clang-format")
    changed = [name for name in written + sorted({file for file, _, _ in LISTS[arguments.kind]}) if name.endswith((".h", ".cpp"))]
    if formatter:
        subprocess.run([formatter, "-i", *changed], cwd=ROOT, check=True)
    else:
        print("then run ./dev fmt")
    return 0


if __name__ == "__main__":
    sys.exit(main())
