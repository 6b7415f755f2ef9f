#!/usr/bin/env python3
"""The ZeRO table: GPT-2 124M on 1, 2 and 4 emulated ranks, by stage and tier; memory by purpose, step time, bytes of communication.

    zero_stages.py [--out DIR]     default: benchmarks/results (zero_stages.md, zero_stages.svg)

Every row is a run of three steps of `sluice train --nproc W` with random weights, beside its plan. The formula's columns are per
parameter: 2 bytes of weights, 2 of gradients, 10 of state (the master's upper half is the compute weight), each divided by W where the
stage shards it. Planned rows for GPT-2 XL need no ranks. Needs build/release/sluice.
"""
import argparse
import json
import shutil
import tempfile
from pathlib import Path

from random_inputs import make_inputs, run

MiB = 1 << 20
BUDGET = 4 << 30  # of one device, for the largest micro-batch
ROWS = [("0", 0, "none", "none"), ("1", 1, "none", "none"), ("2", 2, "none", "none"), ("3", 3, "none", "none"),
        ("3 + cpu", 3, "cpu", "cpu"), ("3 + nvme", 3, "nvme", "nvme")]
# Else they are chosen by what the budget leaves, differently in each row.
EXECUTION = {"overlap": "forward", "keep_graphs": 0, "keep_weights": 0, "device_slots": 2, "boundaries": "gpu", "pools": {"state": 32}}
PURPOSES = ["weights", "gradients", "optimizer state", "boundaries", "temporaries"]


def settings(stage, weights, state, micro, more):
    keys = {"zero_optimization.stage": stage, "zero_optimization.offload_param.device": weights, "zero_optimization.offload_optimizer.device": state,
            "train_micro_batch_size_per_gpu": micro, **more}
    return [word for key, value in keys.items() for word in ("--set", f"{key}={json.dumps(value)}")]


def plan(config, world, stage, weights, state, micro=1, more={}):
    done = run(["plan", config, "--machine", "a100-40g", "--world", world, "--json", *settings(stage, weights, state, micro, more)], check=False)
    return json.loads(done.stdout) if done.stdout else None


def largest_micro_batch(config, world, stage, weights, state):
    """That fits the budget, by plans alone; doubling, then halving the step."""
    def fits(micro):
        found = plan(config, world, stage, weights, state, micro, {"memory.gpu": BUDGET})
        return found is not None and found["memory"]["gpu"]["need"] <= BUDGET
    micro = 0
    step = 1
    while fits(micro + step):
        micro += step
        step *= 2
    while step > 1:
        step //= 2
        if fits(micro + step):
            micro += step
    return micro


def formula(parameters, world, stage):
    """MiB of weights, gradients and state."""
    shard = [world if stage >= level else 1 for level in (3, 2, 1)]
    return [parameters * size / share / MiB for size, share in zip((2, 2, 10), shard)]


def purposes(document):
    rows = {row["purpose"]: row["bytes"] / MiB for row in document["memory"]["gpu"]["rows"]}
    at_work = rows.get("weights at work", 0) + rows.get("gradients at work", 0) + rows.get("communication", 0)
    return [rows.get(purpose, 0) for purpose in PURPOSES[:3]] + [at_work] + [rows.get(purpose, 0) for purpose in PURPOSES[3:]]


def measured(config, folder, world, stage, weights, state):
    run_dir = folder / "run"
    shutil.rmtree(run_dir, ignore_errors=True)
    more = {"run.dir": str(run_dir), "machine.compute_threads": 1, "execution.optimizer_threads": 1}
    done = json.loads(run(["train", config, "--nproc", world, "--json", *settings(stage, weights, state, 1, more)]).stdout)
    steps = [line for line in map(json.loads, open(run_dir / "metrics.jsonl")) if "step_seconds" in line]
    shutil.rmtree(run_dir, ignore_errors=True)
    return done["ranks"], steps


def bars(rows):
    """Stacked bars: planned peak per rank by purpose; what was measured is in the table."""
    colours = ["#0072b2", "#56b4e9", "#009e73", "#999999", "#e69f00", "#f0e442"]
    names = ["weights", "gradients", "optimizer state", "at work", "boundaries", "temporaries"]
    height, top = 24, max(sum(values) for _, values in rows)
    parts = []
    for i, name in enumerate(names):
        parts.append(f'<rect x="{130 + 120 * i}" y="8" width="12" height="12" fill="{colours[i]}"/><text x="{146 + 120 * i}" y="18">{name}</text>')
    for n, (label, values) in enumerate(rows):
        x, y = 130.0, 36 + n * height
        parts.append(f'<text x="122" y="{y + 13}" text-anchor="end">{label}</text>')
        for colour, value in zip(colours, values):
            width = 640 * value / top
            parts.append(f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{height - 7}" fill="{colour}"/>')
            x += width
        parts.append(f'<text x="{x + 6:.1f}" y="{y + 13}">{sum(values):.0f} MiB</text>')
    total = 44 + len(rows) * height
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-24 0 904 {total}" width="904" height="{total}" font-family="sans-serif" font-size="12">'
            f'<rect x="-24" width="904" height="{total}" fill="#fff"/>\n' + "\n".join(parts) + "\n</svg>\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="zero-stages-"))
    try:
        table, pictures = measure_all(folder)
        xl = plan_xl(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    (arguments.out / "zero_stages.svg").write_text(bars(pictures))
    (arguments.out / "zero_stages.md").write_text(
        "# GPT-2 by ZeRO stage\n\n`benchmarks/zero_stages.py`: GPT-2 124M, random weights, sequence 256, micro-batch 1, bf16, ranks on 2 cores; MiB per rank, the\n"
        "largest of the ranks. \"At work\": the buffers that blocks pass through, as large as the largest block (the embedding) for any number of ranks.\n"
        "Formula: 2, 2 and 10 bytes a parameter, divided by W where the stage shards. Columns by purpose and the picture are the plan's. Exchanged: received by all ranks together in a step, from\n"
        "the plan (a test holds that equal to what ranks count). No graphs are kept, so that rows differ by stage only.\n\n"
        "![](zero_stages.svg)\n\n" + "\n".join(table) + "\n\n## GPT-2 XL, planned (a100-40g)\n\n" + "\n".join(xl) + "\n")


def make_config(folder):
    model, tokens = make_inputs(folder, "gpt2", "GPT-2-124M", 50257)
    config = folder / "gpt2.json"
    config.write_text(json.dumps({
        "model": {"path": str(model)}, "data": {"train": str(tokens), "sequence_length": 256}, "steps": 3,
        "train_micro_batch_size_per_gpu": 1, "optimizer": {"params": {"lr": 1e-5}}, "memory": {"gpu": "3500MiB", "host": "2GiB", "pinned": 0},
        "zero_optimization": {"stage": 3}, "machine": {"device": "cpu"},
        "execution": EXECUTION}))
    return config


def measure_all(folder):
    config = make_config(folder)
    head = ["W", "stage", "planned peak", "measured peak", "weights", "gradients", "state", "formula w + g + s", "at work", "boundaries", "temporaries",
            "step s", "exchanged MB", f"micro-batch in {BUDGET >> 30} GiB"]
    table, pictures = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)], []
    for world in (1, 2, 4):
        for label, stage, weights, state in ROWS:
            document = plan(config, world, stage, weights, state, 1, {"machine.compute_threads": 1})
            ranks, steps = measured(config, folder, world, stage, weights, state)
            values = purposes(document)
            expected = formula(document["parameters"], world, stage)
            device = [e if tier == "none" else 0 for e, tier in zip(expected, (weights, state, state))]
            per_step = document["bytes_per_step"]["net"] * world
            peak, planned_peak = (max(rank[key] for rank in ranks) / MiB for key in ("device_peak", "device_planned"))
            table.append(f"| {world} | {label} | {planned_peak:.0f} | {peak:.0f} ({100 * (peak / planned_peak - 1):+.1f} %) | {values[0]:.0f} | {values[1]:.0f} | "
                         f"{values[2]:.0f} | {sum(device):.0f} | {values[3]:.0f} | {values[4]:.0f} | {values[5]:.0f} | {steps[-1]['step_seconds']:.2f} | "
                         f"{per_step / 1e6:.0f} | {largest_micro_batch(config, world, stage, weights, state)} |")
            pictures.append((f"W {world}, stage {label}", values))
            print(table[-1], flush=True)
    return table, pictures


def plan_xl(folder):
    config = folder / "xl.json"
    config.write_text(json.dumps({"model": {"family": "gpt2", "sizes": "GPT-2-XL"}, "data": {"sequence_length": 1024}, "train_micro_batch_size_per_gpu": 1,
                                  "zero_optimization": {"stage": 3}, "memory": {"gpu": "40GiB", "host": "100GiB"}, "execution": EXECUTION}))
    table = ["| W | stage | device GiB | weights | gradients | state | at work | step ms |", "|---|---|---|---|---|---|---|---|"]
    for world in (1, 2, 4, 8):
        for label, stage, weights, state in ROWS[:5]:
            document = plan(config, world, stage, weights, state)
            values = [value / 1024 for value in purposes(document)]
            table.append(f"| {world} | {label} | {document['memory']['gpu']['need'] / (1 << 30):.2f} | {values[0]:.2f} | {values[1]:.2f} | {values[2]:.2f} | "
                         f"{values[3]:.2f} | {1e3 * document['step_seconds']:.0f} |")
    return table


if __name__ == "__main__":
    main()
