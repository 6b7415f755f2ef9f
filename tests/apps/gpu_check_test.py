#!/usr/bin/env python3
"""scripts/gpu-check ends with a well-formed result, on a machine without a GPU too.   gpu_check_test.py SOURCE_DIR BUILD_DIR"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

source, build = Path(sys.argv[1]), Path(sys.argv[2])
problems = []


def expect(condition, text):
    if not condition:
        problems.append(text)


with tempfile.TemporaryDirectory() as folder:
    out = Path(folder) / "result"
    done = subprocess.run([source / "scripts/gpu-check", "--build", build, "--out", out, "--seconds", "100"], text=True, capture_output=True)
    print(done.stdout, done.stderr)
    expect(done.returncode == 0, f"exit {done.returncode}")
    document = json.loads((out / "gpu-check.json").read_text())
    markdown = (out / "gpu-check.md").read_text()
    expect(document["format"] == 2 and document["complete"] and document["raw"]["doctor"], "no findings of doctor, or not complete")
    expect(len(document["checks"]) >= 18, f"{len(document['checks'])} checks")
    for check in document["checks"]:
        expect(check["status"] in ("passed", "failed", "skipped"), f"{check['name']}: status {check['status']}")
        expect(check["summary"], f"{check['name']} says nothing: not even why it was skipped")
        expect(f"| {check['name']} | {check['status']} |" in markdown, f"{check['name']} is not in the Markdown")
        expect(check["name"] in done.stdout, f"{check['name']} was not printed")
    expect(sum(document["counts"].values()) == len(document["checks"]), "counts do not add up")
    if not any(f["section"].startswith("GPU ") for f in document["raw"]["doctor"]):
        ran = [c["name"] for c in document["checks"] if c["status"] != "skipped" and c["name"] not in ("machine",) and "contract" not in c["name"]]
        expect(not ran, f"without a GPU these ran: {ran}")
print("\n".join(problems) or "gpu-check: well formed")
sys.exit(1 if problems else 0)
