#!/usr/bin/env python3
"""NVMe bytes per parameter and step, as the kernel counts them for the process (the blocks of getrusage), for each overlap and accumulation.

    nvme_traffic.py [--out FILE.md]

Needs what scripts/demo makes (work/) and build/release/sluice. A run of 6 steps less one of 2: what opening, loading and creating the
store cost cancels.
"""
import argparse
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

from safetensors import safe_open

ROOT = Path(__file__).resolve().parents[1]
RUN, LONG, SHORT = "runs/traffic", 6, 2


def blocks(steps, overlap, accumulation):
    """Bytes read and written by a whole run."""
    shutil.rmtree(ROOT / RUN, ignore_errors=True)
    values = {"run.dir": RUN, "steps": steps, "data.sequence_length": 64, "train_micro_batch_size_per_gpu": 1,
              "gradient_accumulation_steps": accumulation, "execution.overlap": overlap, "memory.gpu": "2GiB",
              # Else they are chosen for each machine, and with RAM to spare what is on NVMe would hardly be read.
              "memory.pinned": 0, "execution.keep_graphs": 0, "execution.keep_weights": 0, "execution.boundaries": "gpu", "execution.device_slots": 2,
              "gradient_clipping": 0,  # no guess fails
              "scheduler": None}
    command = ["build/release/sluice", "train", "configs/smollm2-135m-nvme.json"]
    for key, value in values.items():
        command += ["--set", f"{key}={json.dumps(value)}"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    message = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    shutil.rmtree(ROOT / RUN, ignore_errors=True)
    if status != 0:
        sys.exit(message)
    return 512 * usage.ru_inblock, 512 * usage.ru_oublock


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    with safe_open(ROOT / "work/smollm2-135m-instruct/model.safetensors", "np") as model:
        parameters = sum(math.prod(model.get_slice(name).get_shape()) for name in model.keys())
    lines = ["| overlap | accumulation | read B/p | written B/p | sum |", "|---|---|---|---|---|"]
    for overlap in ["none", "forward", "backward", "spread"]:
        for accumulation in [1, 8]:
            long, short = blocks(LONG, overlap, accumulation), blocks(SHORT, overlap, accumulation)
            read, written = ((a - b) / (LONG - SHORT) / parameters for a, b in zip(long, short))
            lines.append(f"| {overlap} | {accumulation} | {read:.2f} | {written:.2f} | {read + written:.2f} |")
            print(lines[-1], flush=True)
    text = "\n".join(lines) + "\n"
    if arguments.out:
        arguments.out.write_text(text)


if __name__ == "__main__":
    main()
