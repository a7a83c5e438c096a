"""The schema of bench/results/*.json (described in bench/results/README.md), for the scripts that read or write it."""
import json
import os
import pathlib
import platform
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent


def problems_of(document, stem=None):
    """What is wrong with a document, as a list of sentences."""
    found = []

    def need(holder, where, key, kinds):
        value = holder.get(key)
        if not isinstance(value, kinds) or isinstance(value, bool):
            found.append(f"{where}{key} is {value!r}")
            return False
        return True

    if not isinstance(document, dict):
        return ["it is no JSON object"]
    if document.get("schema", 1) != 1:
        found.append(f"schema is {document.get('schema')!r}; this version knows 1")
    if need(document, "", "name", str) and stem is not None and document["name"] != stem:
        found.append(f"name is '{document['name']}', the file is {stem}.json")
    if need(document, "", "when", str) and not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", document["when"]):
        found.append(f"when is '{document['when']}', not YYYY-MM-DDTHH:MM:SSZ")
    need(document, "", "git", str)
    if need(document, "", "machine", dict):
        for key, kinds in (("cpu", str), ("cores", int), ("os", str), ("compiler", str)):
            need(document["machine"], "machine.", key, kinds)
    for key in ("seed", "input_hash"):
        if key not in document:
            found.append(f"{key} is missing (null says that there is none)")
    if need(document, "", "results", list):
        if not document["results"]:
            found.append("results is empty")
        cases = set()
        for i, result in enumerate(document["results"]):
            where = f"results[{i}]."
            if not isinstance(result, dict):
                found.append(f"results[{i}] is no object")
                continue
            if "reason" in result:  # nothing was measured, and this is why
                if any(key in result for key in ("median", "min", "max")):
                    found.append(f"{where}a row with a reason has no figures")
                need(result, where, "case", str)
                need(result, where, "reason", str)
                continue
            if result.get("device_p50_ns") == 0 or result.get("answered_by_device") == 0:
                found.append(f"{where}'{result.get('case')}' is named after a device that answered none of its packets")
            good = [need(result, where, key, kinds) for key, kinds in
                    (("case", str), ("unit", str), ("median", (int, float)), ("min", (int, float)),
                     ("max", (int, float)), ("n", int))]
            if all(good):
                if not result["min"] <= result["median"] <= result["max"]:
                    found.append(f"{where}median is outside min..max")
                if result["n"] < 1:
                    found.append(f"{where}n is {result['n']}")
                if result["case"] in cases:
                    found.append(f"{where}case '{result['case']}' is there twice")
                cases.add(result["case"])
    return found


def stored(results):
    """The files of single measurements. Reports of the suite (suite_*.json) are gen_performance.py's."""
    return sorted(path for path in results.glob("*.json") if not path.name.startswith("suite_"))


def read(path):
    """The document of a file. Raises ValueError with a message for the user."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    problems = problems_of(document, path.stem)
    if problems:
        raise ValueError("\n".join(f"{path}: {problem}" for problem in problems))
    return document


def _first(pattern, path):
    try:
        match = re.search(pattern, pathlib.Path(path).read_text(), re.M)
    except OSError:
        return None
    return match.group(1).strip() if match else None


def machine(compiler="g++"):
    """This machine, for the `machine` object."""
    try:
        said = subprocess.run([compiler, "-dumpfullversion", "-dumpversion"], capture_output=True, text=True, check=True)
        compiler_name = f"{compiler} {said.stdout.strip()}"
    except (OSError, subprocess.CalledProcessError):
        compiler_name = compiler
    gpu = driver = None
    try:
        said = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
                              capture_output=True, text=True, check=True)
        gpu, driver = (part.strip() for part in said.stdout.splitlines()[0].split(",", 1))
    except (OSError, subprocess.CalledProcessError, IndexError, ValueError):
        pass
    memory = _first(r"^MemTotal:\s+(\d+)", "/proc/meminfo")
    return {"cpu": _first(r"^model name\s*:\s*(.*)$", "/proc/cpuinfo") or platform.machine(),
            "cores": len(os.sched_getaffinity(0)), "memory_gib": round(int(memory) / 2**20, 1) if memory else None,
            "gpu": gpu, "driver": driver, "os": _first(r'^PRETTY_NAME="?([^"\n]*)', "/etc/os-release") or platform.system(),
            "kernel": platform.release(), "compiler": compiler_name}


def git_revision():
    """As cmake/Revision.cmake has it: "-dirty" where what programs are made of has changed."""
    def git(*words):
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    try:
        changed = git("status", "--porcelain", "--", "src", "apps", "cmake", "CMakeLists.txt", "CMakePresets.json",
                      ":(glob)bench/*.cpp", ":(glob)bench/*.cc", ":(glob)studies/**/*.[chi]*", ":(glob)studies/**/*.json")
        return git("rev-parse", "--short=7", "HEAD") + ("-dirty" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def text_of(document):
    """The file of a measurement: each of its fields and each of its rows on a line, so that a change shows by rows."""
    one = lambda value: json.dumps(value, ensure_ascii=False)
    fields = []
    for key, value in document.items():
        rows = key == "results" and value
        fields.append(f"  {one(key)}: " + ("[\n    " + ",\n    ".join(one(row) for row in value) + "\n  ]" if rows else one(value)))
    return "{\n" + ",\n".join(fields) + "\n}\n"
