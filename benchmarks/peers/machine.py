"""One line on the machine and the versions of what was measured, for the head of a result file."""
import importlib.metadata
import os
import platform
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def _version(name):
    if name == "fio":
        return subprocess.run(["fio", "--version"], capture_output=True, text=True, check=True).stdout.strip().replace("-", " ")
    return f"{name} {importlib.metadata.version(name)}"


def describe(*peers):
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text()).group(1)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    versions = ", ".join(_version(name) for name in peers)
    return f"{cpu}, {len(os.sched_getaffinity(0))} cores, {memory:.0f} GiB, Linux {platform.release()}; {versions}, sluice {commit}"
