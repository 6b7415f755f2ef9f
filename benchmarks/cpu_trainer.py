#!/usr/bin/env python3
"""What each thing gives that makes training on the CPU device fast, with it and without it, alternated in one series.

    cpu_trainer.py [--rounds N] [--out FILE.md]

Attention by matrix products over tiles, and memory of temporaries that is kept: by layer_bench, times the layers of SmolLM2-135M. OpenMP threads
that sleep where they wait, kept graphs and kept weights: by runs of SmolLM2-135M with weights and state on NVMe. Needs what scripts/demo makes (work/), build/release, and quiet cores.
"""
import argparse
import json
import os
import statistics
import subprocess
from pathlib import Path

from planned_runs import ROOT, measured

LAYERS = 30
NVME = {"zero_optimization.offload_param.device": "nvme", "zero_optimization.offload_optimizer.device": "nvme", "storage.durable": "none",
        "execution.overlap": "forward", "execution.keep_graphs": LAYERS}
ATTENTION = ("attention", "attention of LibTorch")


def layer(*words):
    command = ["build/release/benchmarks/layer_bench", "--json", "--repeats", "9", *words]
    return json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)


def attention(name):
    seen = layer()
    return LAYERS * sum(seen[f"{name} {way}"] for way in ("forward", "backward"))


def whole(*words):
    seen = layer(*words)
    return LAYERS * (seen["layer forward with graph"] + seen["layer backward"]) + seen["loss"]


def step(waits=None, **settings):
    if waits:
        os.environ["OMP_WAIT_POLICY"] = waits
    try:
        return measured({**NVME, **{f"execution.{key}": value for key, value in settings.items()}})
    finally:
        os.environ.pop("OMP_WAIT_POLICY", None)


# What: of what the seconds are, with it, without it.
THINGS = {
    "attention by tiles, not by LibTorch's": ("attention of a step, 512 tokens", lambda: attention(ATTENTION[0]), lambda: attention(ATTENTION[1])),
    "temporaries in memory that is kept": ("layers and loss of a step, 512 tokens", whole, lambda: whole("--system-memory")),
    "threads that sleep where they wait": ("a step", step, lambda: step(waits="active")),
    "kept graphs, not computed again": ("a step", step, lambda: step(keep_graphs=0)),
    "weights kept for the backward": ("a step, nothing else kept", lambda: step(keep_graphs=0, keep_weights=LAYERS), lambda: step(keep_graphs=0)),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    seen = {name: ([], []) for name in THINGS}
    for _ in range(arguments.rounds):
        for name, (_, *ways) in THINGS.items():
            for seconds, way in zip(seen[name], ways):
                seconds.append(way())
            print(f"{name}: {seen[name][0][-1]:.2f} s with it, {seen[name][1][-1]:.2f} without", flush=True)
    lines = ["| what | of | s with it, each round | s without it | with it, less by |", "|---|---|---|---|---|"]
    for name, (of, *_) in THINGS.items():
        (mine, other), texts = map(statistics.median, seen[name]), [", ".join(f"{s:.2f}" for s in series) for series in seen[name]]
        lines.append(f"| {name} | {of} | {texts[0]} | {texts[1]} | {100 * (1 - mine / other):.0f} % |")
    print("\n".join(lines))
    if arguments.out:
        arguments.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
