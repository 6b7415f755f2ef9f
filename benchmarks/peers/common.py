"""What the peers share: the rows in the order sluice takes them, counters of the process, one line of JSON at the end."""
import json
import sys
import time
from pathlib import Path

import numpy as np
import xxhash

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import token_file  # noqa: E402

MASK = (1 << 64) - 1
ADAM = {"lr": 1e-5, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}


def _splitmix(state):
    while True:
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        yield z ^ (z >> 31)


def _below(draws, bound):
    """Uniform in [0, bound): the product's upper half, values that would be favoured are drawn again."""
    while True:
        product = next(draws) * bound
        if product & MASK >= (1 << 64) % bound:
            return product >> 64


def row_order(count, seed, epoch=0):
    """The order of docs/token_file.md, of a file whose documents are whole rows."""
    draws = _splitmix(xxhash.xxh3_64_intdigest(seed.to_bytes(8, "little") + epoch.to_bytes(8, "little")))
    order = list(range(count))
    for last in range(count - 1, 0, -1):
        other = _below(draws, last + 1)
        order[last], order[other] = order[other], order[last]
    return order


class Batches:
    """Endless micro-batches, int64 [micro_batch, sequence]: the same rows as sluice's with run.seed = 1."""

    def __init__(self, path, micro_batch, seed=1):
        rows = token_file.read(path)[2]
        self.rows = np.stack(rows).astype(np.int64)
        self.order, self.micro_batch, self.at = row_order(len(rows), seed), micro_batch, 0

    def __next__(self):
        import torch
        if self.at + self.micro_batch > len(self.order):
            sys.exit("the token file has too few rows for so many steps")
        chosen = self.order[self.at:self.at + self.micro_batch]
        self.at += self.micro_batch
        return torch.from_numpy(self.rows[chosen])


def _disk():
    values = dict(line.split(": ") for line in open("/proc/self/io").read().splitlines())
    return int(values["read_bytes"]), int(values["write_bytes"])


class Steps:
    """Seconds, loss and disk bytes of each step; report() prints them as the last line."""

    def __init__(self):
        self.lines = []

    def run(self, step):
        """step() returns the loss."""
        disk, begin = _disk(), time.perf_counter()
        loss = step()
        seconds = time.perf_counter() - begin
        read, written = (now - then for now, then in zip(_disk(), disk))
        self.lines.append({"seconds": seconds, "loss": float(loss), "disk_read": read, "disk_write": written})

    def report(self):
        print(json.dumps(self.lines), flush=True)
