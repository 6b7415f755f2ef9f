#!/usr/bin/env python3
"""Whole training steps of sluice beside DeepSpeed ZeRO-3, FSDP2 and plain PyTorch: the same model, rows, seed and memory cap, alternated.

    e2e.py [--model DIR] [--shapes 1x1 1x4 4x1 4x4] [--rounds N] [--steps N] [--memory-cap BYTES] [--memory-gpu BYTES] [--memory-host BYTES] [--contestants NAME...] [--out DIR]

Writes DIR/e2e-DATE.md with machine, versions, commands, raw numbers and ratios, and one picture of the loss curves of each shape. A shape is micro-batch x
accumulation, sequences of 512 tokens. Where there is a GPU all use it, and its peak as the driver has it is a column. Only ratios mean something: every number of a table was taken in one series.
"""
import argparse
import ctypes.util
import datetime
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
from common import ADAM, token_file
from driver_peak import DriverPeak
from machine import describe

ROOT = Path(__file__).resolve().parents[2]
SLUICE, SEQUENCE, RUN = "build/release/sluice", 512, "runs/e2e"
BASE = "DeepSpeed ZeRO-3 nvme"
BIG_BLOCKS = "DeepSpeed ZeRO-3 nvme, 8 MiB blocks"  # what is smaller stays in memory: see deepspeed_step.py


def peer(script, *more):
    def command(model, tokens, shape, steps, _):
        words = [sys.executable, f"benchmarks/peers/{script}.py", model, tokens, *map(str, shape), str(steps), *more]
        return words, lambda out: json.loads(out.strip().split("\n")[-1])
    return command


def sluice(tier):
    def command(model, tokens, shape, steps, memory):
        shutil.rmtree(ROOT / RUN, ignore_errors=True)
        values = {"model.path": model, "data.train": tokens, "data.eval": None, "data.sequence_length": SEQUENCE, "steps": steps, "run.dir": RUN, "run.seed": 1,
                  "train_micro_batch_size_per_gpu": shape[0], "gradient_accumulation_steps": shape[1], "scheduler": None, "gradient_clipping": 1.0,
                  "optimizer": {"type": "AdamW", "params": {**ADAM, "betas": list(ADAM["betas"])}}, **memory,
                  "zero_optimization.offload_param.device": tier, "zero_optimization.offload_optimizer.device": tier,
                  "execution.overlap": "auto", "execution.keep_graphs": "auto", "execution.keep_weights": "auto", "storage.durable": "none",
                  "memory.pinned": 0}  # what is on NVMe stays there, however much RAM is free
        words = [SLUICE, "train", "configs/smollm2-135m-nvme.json"]
        for key, value in values.items():
            words += ["--set", f"{key}={json.dumps(value)}"]

        def parse(_):
            lines = [json.loads(line) for line in open(ROOT / RUN / "metrics.jsonl")]
            shutil.rmtree(ROOT / RUN, ignore_errors=True)
            return [{"seconds": s["step_seconds"], "loss": s["loss"], "disk_read": s["bytes"].get("disk_read", 0),
                     "disk_write": s["bytes"].get("disk_write", 0)} for s in lines if "step_seconds" in s]
        return words, parse
    return command


CONTESTANTS = {
    "PyTorch in memory": peer("pytorch_step"),
    "FSDP2, CPU offload": peer("fsdp_step"),
    "DeepSpeed ZeRO-3 cpu": peer("deepspeed_step", "--tier", "cpu"),
    BASE: peer("deepspeed_step", "--tier", "nvme"),
    BIG_BLOCKS: peer("deepspeed_step", "--tier", "nvme", "--block", "8"),
    "sluice none": sluice("none"),
    "sluice cpu": sluice("cpu"),
    "sluice nvme": sluice("nvme"),
}


def environment():
    """A tuned allocator for the peers: plain malloc returns big blocks to the system, and page faults then cost them a tenth."""
    library = ctypes.util.find_library("tcmalloc_minimal")
    return {**os.environ, "TOKENIZERS_PARALLELISM": "false", **({"LD_PRELOAD": library} if library else {})}


def memory_group(cap):
    """Folder of a fresh memory cgroup with this limit, version 1 or 2; None: no cap."""
    if cap is None:
        return None
    for folder, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        group = Path(folder) / "sluice_e2e"
        try:
            group.mkdir(exist_ok=True)
            (group / limit).write_text(str(cap))
            return group
        except OSError:
            continue
    sys.exit("e2e: this machine lets nobody make a memory cgroup; run without --memory-cap")


def run(words, group):
    """Output, peak resident bytes and the driver's peak of a command; none and the reason where it fails."""
    env = environment() if words[0] == sys.executable else dict(os.environ)

    def enter():
        if group:
            (group / "cgroup.procs").write_text(str(os.getpid()))
    with open(ROOT / "runs/e2e.out", "w+") as out, open(ROOT / "runs/e2e.err", "w+") as err, DriverPeak() as driver:
        child = subprocess.Popen(words, cwd=ROOT, env=env, stdout=out, stderr=err, preexec_fn=enter)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if child.returncode != 0:
            last = (err.read().strip() or "no message").split("\n")[-1]
            return None, f"ended with {child.returncode}: {last[:200]}", None
        text = out.read()
    return text, usage.ru_maxrss * 1024, driver.bytes


def rows_file(model, source, path):
    """Documents of exactly one row each, so that every contestant's rows are one causal sequence."""
    vocab = json.loads((ROOT / model / "config.json").read_text())["vocab_size"]
    ids = np.concatenate(token_file.read(ROOT / source)[2]).astype(np.int64) % vocab
    tokenizer = ROOT / model / "tokenizer.json"
    writer = token_file.Writer(ROOT / path, vocab, token_file.tokenizer_hash(ROOT / model) if tokenizer.exists() else 0)
    for row in range(len(ids) // SEQUENCE):
        writer.add(ids[row * SEQUENCE:(row + 1) * SEQUENCE])
    writer.finish()
    return path


def parameters(model):
    from safetensors import safe_open
    count = 0
    for file in sorted((ROOT / model).glob("*.safetensors")):
        with safe_open(file, "np") as tensors:
            count += sum(int(np.prod(tensors.get_slice(name).get_shape())) for name in tensors.keys())
    return count


def curves(results, path, title):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    figure, axes = pyplot.subplots(figsize=(7, 4))
    for name, seen in results.items():
        if seen["losses"]:
            axes.plot(range(1, len(seen["losses"]) + 1), seen["losses"], "o-" if name.startswith("sluice") else "x--", label=name, markersize=4)
    axes.set(title=title, xlabel="step", ylabel="loss")
    axes.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


def series(model, tokens, shape, arguments, group):
    results = {name: {"seconds": [], "rss": [], "driver": [], "losses": [], "failed": None} for name in arguments.contestants}
    for _ in range(arguments.rounds):
        for name in arguments.contestants:
            seen = results[name]
            if seen["failed"]:
                continue
            words, parse = CONTESTANTS[name](model, tokens, shape, arguments.steps, {"memory.gpu": arguments.memory_gpu, "memory.host": arguments.memory_host})
            if arguments.checkpointing and words[0] == sys.executable:
                words.append("--checkpointing")
            out, rss, driver = run(words, group)
            if out is None:
                seen["failed"] = rss
                print(f"{shape}  {name}: {rss}", file=sys.stderr, flush=True)
                continue
            steps = parse(out)
            steady = steps[arguments.warm:]
            seen["seconds"].append(statistics.median(s["seconds"] for s in steady))
            seen["rss"].append(rss)
            seen["driver"].append(driver or 0)
            seen["losses"] = [s["loss"] for s in steps]
            seen["disk"] = [statistics.median(s[k] for s in steady) for k in ("disk_read", "disk_write")]
            print(f"{shape}  {name}: {seen['seconds'][-1]:.2f} s, loss {seen['losses'][-1]:.4f}, {rss / 2**20:.0f} MiB", file=sys.stderr, flush=True)
    return results


def table(results, shape, count):
    per_step = shape[0] * shape[1] * SEQUENCE
    base = results.get(BASE, {}).get("seconds")
    on_gpu = any(max(seen["driver"], default=0) for seen in results.values())
    head = ["what", "s per step, each round", "tokens/s", "ratio to DeepSpeed nvme", "peak RSS MiB", *(["driver's peak MiB"] if on_gpu else []),
            "disk read, written B/p", "last loss"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for name, seen in results.items():
        if seen["failed"]:
            lines.append(f"| {name} | {seen['failed']} |" + " |" * (len(head) - 2))
            continue
        median = statistics.median(seen["seconds"])
        ratio = f"{statistics.median(base) / median:.2f}" if base else ""
        read, written = (b / count for b in seen["disk"])
        lines.append(f"| {name} | {', '.join(f'{s:.2f}' for s in seen['seconds'])} | {per_step / median:.0f} | {ratio} | {statistics.median(seen['rss']) / 2**20:.0f} "
                     + (f"| {max(seen['driver']) / 2**20:.0f} " if on_gpu else "") + f"| {read:.1f}, {written:.1f} | {seen['losses'][-1]:.4f} |")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="work/smollm2-135m-instruct")
    parser.add_argument("--tokens", default="work/bible.train.tokens")
    parser.add_argument("--shapes", nargs="+", default=["1x1", "1x4", "4x1", "4x4"])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--warm", type=int, default=2, help="steps left out of the medians")
    parser.add_argument("--checkpointing", action="store_true", help="the peers recompute (sluice decides by its budget)")
    parser.add_argument("--memory-cap", type=int, help="bytes")
    parser.add_argument("--memory-gpu", default="8GiB", help="sluice's budget of the device (the emulated one takes it from RAM)")
    parser.add_argument("--memory-host", default="auto", help="sluice's budget of RAM")
    parser.add_argument("--contestants", nargs="+", default=list(CONTESTANTS), choices=list(CONTESTANTS))
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results")
    arguments = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.getrlimit(resource.RLIMIT_MEMLOCK)[1],) * 2)
    (ROOT / "runs").mkdir(exist_ok=True)
    tokens = rows_file(arguments.model, arguments.tokens, "runs/e2e.tokens")
    count, group = parameters(arguments.model), memory_group(arguments.memory_cap)
    name, date = Path(arguments.model).name, datetime.date.today().isoformat()
    lines = [f"# Whole steps beside the peers: {name}, {date}", "", describe("torch", "transformers", "deepspeed") + ".", "",
             f"`benchmarks/peers/{' '.join([Path(sys.argv[0]).name, *sys.argv[1:]])}`: {count / 1e6:.1f} M parameters, sequence {SEQUENCE}, bf16 compute, fp32 master, "
             f"AdamW, clip 1.0; medians of the steps after the first {arguments.warm} of {arguments.steps}, contestants alternated over {arguments.rounds} rounds"
             + (f", each in a cgroup of {arguments.memory_cap / 2**30:.1f} GiB" if group else "") + "."]
    for text in arguments.shapes:
        shape = tuple(map(int, text.split("x")))
        results = series(arguments.model, tokens, shape, arguments, group)
        picture = f"e2e-{name}-{text}-{date}.svg"
        curves(results, arguments.out / picture, f"{name}, micro-batch {shape[0]}, accumulation {shape[1]}")
        lines += ["", f"## Micro-batch {shape[0]}, accumulation {shape[1]}", "", *table(results, shape, count), "", f"![loss]({picture})"]
        (arguments.out / f"e2e-{name}-{date}.md").write_text("\n".join(lines) + "\n")
    for leftover in (ROOT / tokens, ROOT / "runs/e2e.out", ROOT / "runs/e2e.err"):
        leftover.unlink(missing_ok=True)
    if group:
        group.rmdir()


if __name__ == "__main__":
    main()
