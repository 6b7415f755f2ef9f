#!/usr/bin/env python3
"""The house rules that a machine can check: include direction, where libraries may appear, file length, that every source and
test is built, and that messages name keys of the config which exist.   tidy_test.py SOURCE_DIR"""
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
LAYERS = ["base", "io", "gpu", "cpu_adam", "offload", "engine", "configs", "apps"]
BELOW = {
    "base": [], "io": ["base"], "gpu": ["base"], "cpu_adam": ["base"],
    "offload": ["base", "io", "gpu", "cpu_adam"],
    "engine": ["base", "io", "gpu", "cpu_adam", "offload"],
    "configs": ["base", "io", "gpu", "cpu_adam", "offload", "engine"],
    "apps": ["base", "io", "gpu", "cpu_adam", "offload", "engine", "configs"],
}
ONLY_IN = [  # what may be included where
    (r"<(ATen|torch|c10)/", ("engine/", "gpu/", "tests/engine/", "tests/gpu/", "benchmarks/")),
    (r"<((ATen|c10)/cuda/|cuda|nvtx3/)", ("gpu/", "tests/gpu/")),
    (r"<(nccl|mpi)", ("engine/comm/",)),
    (r"<liburing", ("io/",)),
    (r"<hwy/", ("cpu_adam/", "gpu/")),
    (r"<(tbb|oneapi/tbb)/", ("cpu_adam/",)),
    (r"<hwloc", ("base/topology",)),
    (r"<CLI/", ("apps/", "tests/apps/", "benchmarks/")),
]
MAX_LINES = 500
problems = []


def sources():
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, text=True,
                            capture_output=True, check=True).stdout.split("\n")
    return [Path(f) for f in listed if f and (ROOT / f).is_file()]


def check_includes(file, text):
    layer = file.parts[0]
    for number, line in enumerate(text.split("\n"), 1):
        found = re.match(r'\s*#\s*include\s+(["<][^">]+[">])', line)
        if not found:
            continue
        name = found.group(1)
        target = name.strip('"<>').split("/")[0]
        if layer in BELOW and name.startswith('"') and target in LAYERS and target != layer and target not in BELOW[layer]:
            problems.append(f"{file}:{number}: {layer} may not include {name}")
        for pattern, allowed in ONLY_IN:
            if re.match(pattern, name) and not str(file).startswith(allowed):
                problems.append(f"{file}:{number}: {name} belongs only in {', '.join(allowed)}")


def check_built(files):
    lists = "\n".join((ROOT / f).read_text() for f in files if f.name == "CMakeLists.txt")
    for file in files:
        if file.suffix in (".cc", ".cu") and not re.search(rf"\b{re.escape(file.name)}\b", lists):
            problems.append(f"{file}: not built by any CMakeLists.txt")


def config_keys():
    """Every key, and the sections above them."""
    keys = set(re.findall(r't\.add\(\s*"([^"]+)"', (ROOT / "configs/keys.cc").read_text()))
    return keys | {key.rsplit(".", n)[0] for key in keys for n in range(1, key.count(".") + 1)}


def check_messages(file, text, keys):
    """Literals with a space in them are for people: what looks like a key there must be one (or a tensor, or a file)."""
    sections = {key.split(".")[0] for key in keys if "." in key}
    for number, line in enumerate(text.split("\n"), 1):
        for literal in re.findall(r'"((?:[^"\\]|\\.)*)"', line):
            words = re.findall(r"(?<![\w./-])([a-z_]\w*(?:\.[a-z_]\w*)+)(?![\w/(])", literal) if " " in literal else []
            for word in words:
                if word.split(".")[0] in sections and word not in keys and not re.search(r"^model\.layers|\.(json|safetensors)$", word):
                    problems.append(f"{file}:{number}: a message names {word}, which is no key of the config")


def main():
    files = sources()
    keys = config_keys()
    for file in files:
        if file.suffix not in (".cc", ".h", ".cu", ".py") and file.parts[0] not in ("scripts", ".ci"):
            continue
        text = (ROOT / file).read_text()
        lines = text.count("\n")
        if lines > MAX_LINES:
            problems.append(f"{file}: {lines} lines, at most {MAX_LINES}")
        if file.suffix in (".cc", ".h", ".cu"):
            check_includes(file, text)
            if file.parts[0] in LAYERS and not file.name.startswith("deepspeed_"):
                check_messages(file, text, keys)
        if file.suffix == ".h" and "#pragma once" not in text and not file.name.endswith("-inl.h"):
            problems.append(f"{file}: no #pragma once")
        if re.search(r"[ \t]+\n", text):
            problems.append(f"{file}: trailing white space")
    check_built(files)
    print("\n".join(problems) or f"tidy: {len(files)} files")
    return 1 if problems else 0


sys.exit(main())
