#!/usr/bin/env python3
"""A model whose state is several times the memory it may use: the Llama-3.2-3B shape, random weights, in 6 GiB of device and 9 GiB of host budget.

    large_model.py [--sizes NAME] [--steps N] [--out FILE.md]

Prints what `sluice plan` says beside what the run did. Takes ten minutes and 45 GB of disk (with 3B). Needs build/release/sluice and what scripts/demo
makes (the tokens).
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SLUICE, MODEL, RUN, CONFIG = "build/release/sluice", "work/large_model", "runs/large_model", "runs/large_model.json"


def sluice(*words):
    """Output and peak resident bytes; of the process alone, as the kernel has them."""
    out = open(ROOT / "runs/large_model.out", "w+")
    child = subprocess.Popen([SLUICE, *words], cwd=ROOT, stdout=out)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    out.seek(0)
    if child.returncode not in (0, 10):
        sys.exit(f"sluice {words[0]} ended with {child.returncode}")
    return out.read(), usage.ru_maxrss * 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="Llama-3.2-3B")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    (ROOT / "runs").mkdir(exist_ok=True)
    for folder in (MODEL, RUN):
        shutil.rmtree(ROOT / folder, ignore_errors=True)
    sluice("init", MODEL, "--sizes", arguments.sizes)
    (ROOT / CONFIG).write_text(json.dumps({
        "model": {"path": str(ROOT / MODEL)}, "data": {"train": str(ROOT / "work/bible.train.tokens"), "sequence_length": 512}, "steps": arguments.steps,
        "train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}, "run": {"dir": str(ROOT / RUN)},
        "memory": {"gpu": "6GiB", "host": "9GiB"}, "storage": {"durable": "none"}, "machine": {"device": "cpu"},
        "zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}, "offload_optimizer": {"device": "nvme"}}}))
    plan = json.loads(sluice("plan", CONFIG, "--json", "--measure")[0])
    _, resident = sluice("train", CONFIG, "--json")
    steps = [line["step_seconds"] for line in map(json.loads, open(ROOT / RUN / "metrics.jsonl")) if "step_seconds" in line]
    for leftover in (MODEL, RUN):
        shutil.rmtree(ROOT / leftover, ignore_errors=True)
    for leftover in (CONFIG, "runs/large_model.out"):
        (ROOT / leftover).unlink(missing_ok=True)
    gib = {place: plan["memory"][place]["need"] / 2**30 for place in ("gpu", "host", "disk")}
    steady = statistics.median(steps[1:])
    table = ["| | planned | run |", "|---|---|---|", f"| device arenas and temporaries, GiB | {gib['gpu']:.2f} | |", f"| host arenas, GiB | {gib['host']:.2f} | |",
             f"| resident, all in, GiB | {gib['gpu'] + gib['host']:.2f}, and the program | {resident / 2**30:.2f} |", f"| disk, GiB | {gib['disk']:.1f} | |",
             f"| step, steady, s | {plan['step_seconds']:.1f} | {steady:.1f} ({steady / plan['step_seconds']:.2f} of the plan) |", f"| the first step, s | | {steps[0]:.1f} |"]
    text = f"{arguments.sizes}, {plan['parameters']:,} parameters:\n\n" + "\n".join(table) + "\n"
    print(text)
    if arguments.out:
        arguments.out.write_text(text)


if __name__ == "__main__":
    main()
