#!/usr/bin/env python3
"""The optimizer alone, for the same result: bf16 gradient in, norm, unscale and clip, AdamW, bf16 weight out; alternated in one run.

    adam.py [--tiles N] [--rounds N] [--out DIR]

A tile is 2 Mi parameters; 48 of them are the 100 M of the table. DeepSpeed's step is what its stage 3 does for one sub-group: copy the
gradient to fp32, norm, multiply, DeepSpeedCPUAdam, cast. Writes DIR/adam-DATE.md with machine, versions, raw numbers and ratios.
"""
import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

os.environ.setdefault("DS_ACCELERATOR", "cpu")
import torch  # noqa: E402
from deepspeed.ops.adam import DeepSpeedCPUAdam  # noqa: E402
from machine import describe  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
TILE = 2 << 20
SETTINGS = {"lr": 1e-5, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}


class Peer:
    """fp32 master with its gradient, bf16 gradient and weight, of one flat tensor. norm(gradient): a scalar tensor."""

    def __init__(self, count, make, norm):
        self.norm = norm
        self.master = torch.nn.Parameter(torch.randn(count) * 0.02)
        self.master.grad = torch.zeros(count)
        self.gradient = (torch.randn(count) * 1e-3).to(torch.bfloat16)
        self.weight = torch.empty(count, dtype=torch.bfloat16)
        self.optimizer = make([self.master])
        self.times()  # makes the optimizer's state

    def times(self):
        """Seconds of the whole step and of the optimizer within it."""
        begin = time.perf_counter()
        self.master.grad.copy_(self.gradient)
        self.master.grad.mul_(1.0 / max(1.0, float(self.norm(self.master.grad) + 1e-6)))
        before = time.perf_counter()
        self.optimizer.step()
        after = time.perf_counter()
        with torch.no_grad():
            self.weight.copy_(self.master)
        return time.perf_counter() - begin, after - before


def deepspeed_norm(gradient):
    """In float64, parameter by parameter (here of 2 Mi elements each), as _constant_buffered_norm2 of its stage 3."""
    return torch.stack([part.to(torch.double).norm(2) ** 2 for part in gradient.split(TILE)]).sum().sqrt()


def our_command(tiles):
    return ["build/release/benchmarks/adam_bench", "--json", "--rounds", "3", "--tiles", str(tiles), "--threads", str(len(os.sched_getaffinity(0)))]


def ours(tiles):
    return json.loads(subprocess.run(our_command(tiles), cwd=ROOT, capture_output=True, text=True, check=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiles", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results")
    arguments = parser.parse_args()
    count = arguments.tiles * TILE
    torch.manual_seed(0)
    peers = {"DeepSpeed": Peer(count, lambda p: DeepSpeedCPUAdam(p, **SETTINGS), deepspeed_norm),
             "torch fused": Peer(count, lambda p: torch.optim.AdamW(p, **SETTINGS, fused=True), torch.linalg.vector_norm)}
    seen = {}

    def note(what, seconds):
        seen.setdefault(what, []).append(seconds)
        print(f"{what}: {1e3 * seconds:.1f} ms", file=sys.stderr, flush=True)

    for _ in range(arguments.rounds):
        for name, seconds in ours(arguments.tiles).items():
            note(f"sluice, {name}", statistics.median(seconds))
        for name, peer in peers.items():
            whole, alone = (statistics.median(v) for v in zip(*(peer.times() for _ in range(3))))
            note(f"{name}, whole step", whole)
            note(f"{name}, Adam alone", alone)

    date = datetime.date.today().isoformat()
    median = {what: statistics.median(values) for what, values in seen.items()}
    lines = [f"# The optimizer beside the peers, {date}", "", describe("torch", "deepspeed") + ".", "",
             f"`benchmarks/peers/adam.py {' '.join(sys.argv[1:])}`: {count / 1e6:.1f} M parameters, all cores; {arguments.rounds} rounds, alternated. Whole step: bf16 gradient "
             "in, norm, unscale and clip, AdamW, bf16 weight out. Stream: the same 26 bytes per parameter read and written, no arithmetic.", "",
             f"sluice: `{' '.join(our_command(arguments.tiles))}`; the peers: three steps in this process; medians of three.", "",
             "| what | ms, each round | median | DeepSpeed's whole step / this | stream / this |", "|---|---|---|---|---|"]
    for what, values in seen.items():
        lines.append(f"| {what} | {', '.join(f'{1e3 * v:.0f}' for v in values)} | {1e3 * median[what]:.1f} | {median['DeepSpeed, whole step'] / median[what]:.2f} "
                     f"| {median['sluice, stream'] / median[what]:.2f} |")
    (arguments.out / f"adam-{date}.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
