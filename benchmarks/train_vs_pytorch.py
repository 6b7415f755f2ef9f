#!/usr/bin/env python3
"""Whole training steps of sluice beside transformers + fused AdamW, alternated in one series, on SmolLM2-135M.

    train_vs_pytorch.py [--rounds N] [--steps N] [--sequence N] [--out FILE.md]

Needs what scripts/demo makes (work/) and build/release/sluice; uses tcmalloc for PyTorch when libtcmalloc is installed
(Debian: libtcmalloc-minimal4), else glibc with huge pages. Every ratio is of medians over the rounds of this one run.
"""
import argparse
import ctypes.util
import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODEL, TOKENS, RUN = "work/smollm2-135m-instruct", "work/bible.train.tokens", "runs/benchmark"


def pytorch(arguments, micro_batch):
    env = dict(os.environ, TOKENIZERS_PARALLELISM="false")
    allocator = ctypes.util.find_library("tcmalloc_minimal") or ctypes.util.find_library("tcmalloc")
    if allocator:
        env["LD_PRELOAD"] = allocator
    else:
        env["GLIBC_TUNABLES"] = "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=4294967296"
    command = [sys.executable, "benchmarks/peers/pytorch_step.py", MODEL, TOKENS, "--sequence", str(arguments.sequence),
               "--micro-batch", str(micro_batch), "--steps", str(arguments.steps)]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.strip().split("\n")[-1])["tokens_per_s"]


def sluice(arguments, micro_batch, tier, keep_graphs, overlap="none"):
    shutil.rmtree(ROOT / RUN, ignore_errors=True)
    durable = "step" if tier == "nvme" else "none"
    values = {"run.dir": RUN, "data.sequence_length": arguments.sequence, "steps": arguments.steps,
              "train_micro_batch_size_per_gpu": micro_batch, "gradient_accumulation_steps": 1, "memory.gpu": "8GiB",
              "zero_optimization.offload_param.device": tier, "zero_optimization.offload_optimizer.device": tier,
              "execution.keep_graphs": keep_graphs, "execution.overlap": overlap, "storage.durable": durable}
    command = ["build/release/sluice", "train", "configs/smollm2-135m-nvme.json"]
    for key, value in values.items():
        command += ["--set", f"{key}={json.dumps(value)}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    lines = [line for line in map(json.loads, open(ROOT / RUN / "metrics.jsonl")) if "tokens_per_s" in line]
    shutil.rmtree(ROOT / RUN, ignore_errors=True)
    return statistics.median(line["tokens_per_s"] for line in lines[1:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--sequence", type=int, default=512)
    parser.add_argument("--micro-batches", type=int, nargs="+", default=[4, 1])
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    rows = ["| micro-batch | what | tokens/s, each round | median | ratio to PyTorch |", "|---|---|---|---|---|"]
    for micro_batch in arguments.micro_batches:
        kinds = {"PyTorch": lambda: pytorch(arguments, micro_batch),
                 "sluice, tier none, graphs kept": lambda: sluice(arguments, micro_batch, "none", "all"),
                 "sluice, all on nvme, overlap none": lambda: sluice(arguments, micro_batch, "nvme", 0),
                 "sluice, all on nvme, overlap forward": lambda: sluice(arguments, micro_batch, "nvme", 0, "forward")}
        seen = {kind: [] for kind in kinds}
        for _ in range(arguments.rounds):
            for kind, run in kinds.items():
                seen[kind].append(run())
                print(f"micro-batch {micro_batch}  {kind}: {seen[kind][-1]:.0f} tokens/s", file=sys.stderr, flush=True)
        base = statistics.median(seen["PyTorch"])
        for kind, values in seen.items():
            median = statistics.median(values)
            rows.append(f"| {micro_batch} | {kind} | {', '.join(f'{v:.0f}' for v in values)} | {median:.0f} | {median / base:.2f} |")
    print("\n".join(rows))
    if arguments.out:
        arguments.out.write_text("\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
