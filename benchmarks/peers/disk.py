#!/usr/bin/env python3
"""sluice's disk queue beside fio, alternated on one file of random bytes: 4 MiB direct transfers, 8 in flight, io_uring.

    disk.py [--size GB] [--rounds N] [--dir DIR] [--out DIR]

fio runs with registered buffers on huge pages: its best (this reserves some for it, as root, and gives them back). Writes DIR/disk-DATE.md with machine, versions, commands, raw numbers and ratios.
"""
import argparse
import datetime
import json
import statistics
import subprocess
import sys
from pathlib import Path

from machine import describe

ROOT = Path(__file__).resolve().parents[2]
PASSES = 1  # a round
HUGE = Path("/proc/sys/vm/nr_hugepages")


def fio_command(file, op, size):
    return ["fio", "--name=pass", f"--filename={file}", f"--size={size}", f"--rw={op}", "--ioengine=io_uring", "--direct=1", "--bs=4M", "--iodepth=8",
            "--output-format=json", "--fallocate=none", "--invalidate=0", "--refill_buffers=0", "--scramble_buffers=0", f"--loops={PASSES}", "--fixedbufs",
            "--iomem=shmhuge"]


def our_command(file, op):
    return ["build/release/benchmarks/disk_bench", str(file), "--op", op, "--passes", str(PASSES)]


def fio(file, op, size):
    job = json.loads(subprocess.run(fio_command(file, op, size), capture_output=True, text=True, check=True).stdout)["jobs"][0]
    gigabytes = job[op]["io_bytes"] / 1e9
    # fio fills its buffers before the clock starts; job_runtime in ms
    return gigabytes / (job[op]["runtime"] / 1e3), (job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] / gigabytes


def ours(file, op):
    done = subprocess.run(our_command(file, op), cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    passes = [json.loads(line) for line in done.stdout.splitlines()]
    moved, seconds, cpu = (sum(p[key] for p in passes) for key in ("bytes", "seconds", "cpu_seconds"))
    return moved / 1e9 / seconds, 1e12 * cpu / moved


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=float, default=8)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--dir", type=Path, default=ROOT / "work")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results")
    arguments = parser.parse_args()
    size = int(arguments.size * 1e9) // (64 << 20) * (64 << 20)
    file, before = arguments.dir.resolve() / "disk_bench.bin", HUGE.read_text()
    kinds = {"fio": lambda op: fio(file, op, size), "sluice": lambda op: ours(file, op)}
    seen = {(kind, op): [] for kind in kinds for op in ("read", "write")}
    try:
        HUGE.write_text(str(int(before) + 64))
        subprocess.run([ROOT / "build/release/benchmarks/disk_bench", file, "--size", str(size), "--op", "write"], check=True, capture_output=True)
        for turn in range(arguments.rounds):
            for op in ("read", "write"):
                for kind in (list(kinds) if turn % 2 == 0 else reversed(kinds)):
                    seen[kind, op].append(kinds[kind](op))
                    print(f"{op}  {kind}: {seen[kind, op][-1][0]:.2f} GB/s, {seen[kind, op][-1][1]:.1f} CPU ms/GB", file=sys.stderr, flush=True)
    finally:
        HUGE.write_text(before)
        file.unlink(missing_ok=True)

    date = datetime.date.today().isoformat()
    lines = [f"# Disk beside fio, {date}", "", describe("fio") + ".", "",
             f"`benchmarks/peers/disk.py {' '.join(sys.argv[1:])}`: {size / 1e9:.1f} GB, {PASSES} passes in a row, 4 MiB direct transfers, 8 in flight, io_uring, random content; "
             f"{arguments.rounds} rounds, alternated. Bytes a second and processor time as fio counts them; ratios of medians. fio with registered buffers on huge pages.", "",
             f"fio: `{' '.join(fio_command('FILE', 'OP', size))}`", "", f"sluice: `{' '.join(our_command('FILE', 'OP'))}`", "",
             "| op | what | GB/s, each round | median | ratio | CPU ms/GB | ratio |", "|---|---|---|---|---|---|---|"]
    for op in ("read", "write"):
        base = [statistics.median(v) for v in zip(*seen["fio", op])]
        for kind in kinds:
            rate, cpu = (statistics.median(v) for v in zip(*seen[kind, op]))
            lines.append(f"| {op} | {kind} | {', '.join(f'{r:.2f}' for r, _ in seen[kind, op])} | {rate:.2f} | {rate / base[0]:.2f} | {cpu:.1f} | {cpu / base[1]:.2f} |")
    (arguments.out / f"disk-{date}.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
