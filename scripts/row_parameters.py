"""What a stored row measured, as data: its packets per batch, rules, cores and so on, by the names of studies/NAME/published.json.

They come from the row's case, its fields and the command that made it, never from the figure that stands beside it.
"""
import re

SCALE = {"k": 1, "M": 1000, "G": 10**6}


def _option(row, name):
    """The number behind an option of the row's command, or None."""
    match = re.search(rf" {name}[ =](\d+)(?= |$)", row.get("command") or row.get("of", {}).get("command") or "")
    return int(match.group(1)) if match else None


def _latency(row, m):
    of = row.get("of", {})
    rules = int(m["rules"])
    # Of one rule the first is the last.
    matches = {"no match": "none", "first": "last" if rules == 1 else "first"}.get(m["matches"], m["matches"])
    return {"rules": rules, "masks": int(m["masks"]), "matches": matches, "algorithm": m["algorithm"], "fields": "addresses, proto, dport",
            "packets": int(m["packets"] or row.get("frame") or _option(row, "--frames") or 256), "mode": m["mode"] or of.get("mode"),
            "device": "gpu" if m["mode"] or of.get("device") == "cuda" else "cpu"}


def _classify(row, m):
    return {"shape": m["shape"], "rules": int(m["rules"]), "algorithm": m["algorithm"], "cores": int(m["cores"] or 1), "device": "cpu"}


def _forward(row, m):
    return {"routes": int(m["routes"]), "algorithm": m["algorithm"], "cores": int(m["cores"]), "packets": int(m["packets"]),
            "work": "forward", "device": "cpu"}


def _lookups(row, m):
    of = row.get("of", {})
    return {"routes": int(m["routes"] or of.get("routes4") or 0), "algorithm": m["algorithm"], "packets": row.get("addresses") or _option(row, "--packets"),
            "memory": "pageable" if m["pageable"] else "pinned", "work": "lookup", "device": "gpu" if m["routes"] or of.get("device") == "cuda" else "cpu"}


def _entries(row, m):
    return {"routes": int(m["routes"]), "algorithm": m["algorithm"], "device": "cpu"}


def _functions(row, m):
    return {"function": m["function"], "bytes": int(m["bytes"]), "cores": int(m["cores"]), "packets": int(m["packets"]), "device": "cpu"}


def _port(row, m):
    of = row.get("of", {})
    mix = of.get("mix", [34, 33, 33])
    found = {"bytes": int(m["bytes"]), "packets": row.get("chunk") or int(m["packets"]), "shaped": not m["unshaped"], "algorithm": "dir24",
             "routes": _option(row, "--ipv4") or of.get("routes4") or 4000, "mix": "even" if max(mix) - min(mix) <= 1 else "uneven",
             "mode": "persistent", "device": "gpu"}
    return {**found, "groups": row["groups"]} if "groups" in row else found


def _shaper(row, m):
    return {"kbps": int(m["rate"]) * SCALE[m["scale"]], "device": "cpu"}


CASES = [(re.compile(pattern), read) for pattern, read in (
    (r"(?:cpu/|cuda/(?P<mode>launch|persistent|adaptive)/)?(?P<rules>\d+) rules, (?P<masks>\d+) masks?, (?P<matches>no match|first|last|all), "
     r"(?P<algorithm>\w+)(?:, (?P<packets>\d+) packets)?", _latency),
    (r"(?:module/)?(?P<shape>acl|fw|ipc)_(?P<rules>\d+)/(?P<algorithm>\w+)(?:/x(?P<cores>\d+))?", _classify),
    (r"cpu/(?P<routes>\d+)_routes/(?P<algorithm>\w+)/headers/x(?P<cores>\d+)/(?P<packets>\d+)", _forward),
    (r"(?:cuda/(?P<routes>\d+)_routes/)?ipv4/(?P<algorithm>\w+)/uniform/staged/addresses(?P<pageable>/pageable)?", _lookups),
    (r"entries/ipv4_(?P<routes>\d+)/(?P<algorithm>\w+)", _entries),
    (r"(?P<function>mirror|lookup|crc)/(?P<bytes>\d+)B/x(?P<cores>\d+)/(?P<packets>\d+)", _functions),
    (r"(?:cuda/persistent/)?port/(?P<bytes>\d+)B/persistent/buffer/(?P<packets>\d+)/\d+(?P<unshaped>/unshaped)?", _port),
    (r"(?:shaper/)?(?:simulated|real)/(?P<rate>\d+)(?P<scale>[kMG])bps", _shaper),
)]


def of_row(row):
    """{name: value} of a row. Raises ValueError for a case that no pattern above reads."""
    for pattern, read in CASES:
        match = pattern.fullmatch(row["case"])
        if match:
            return read(row, match)
    raise ValueError(f"scripts/row_parameters.py does not read the case '{row['case']}'")


def differences(wanted, row, allowed=()):
    """In what a row is another one than a figure asks for, as a list of sentences. `allowed`: parameters that may differ. A figure's
    parameter that its study does not state is None and fits each row; a list of two numbers is a range."""
    own = of_row(row)
    found = []
    for name in sorted((set(wanted) | set(own)) - set(allowed)):
        if name not in wanted:
            found.append(f"the figure does not say its {name}, and the row's is {own[name]}")
        elif wanted[name] is None:
            continue
        elif own.get(name) is None:
            found.append(f"the row does not say its {name}, and the figure's is {wanted[name]}")
        elif isinstance(wanted[name], list):
            if not wanted[name][0] <= own[name] <= wanted[name][1]:
                found.append(f"{name} of the row is {own[name]}, of the figure {wanted[name][0]} to {wanted[name][1]}")
        elif own[name] != wanted[name]:
            found.append(f"{name} of the row is {own[name]}, of the figure {wanted[name]}")
    return found
