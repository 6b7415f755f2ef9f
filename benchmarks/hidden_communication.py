#!/usr/bin/env python3
"""How much of the communication between two ranks hides behind computation, by ZeRO stage, on an emulated network; measured beside predicted.

    hidden_communication.py [--out DIR] [--shapes NAME...] [--stages NAME...] [--ratios X...] [--graphs N|all...]     default: benchmarks/results (hidden_communication.md)

Timing only (machine.compute): every byte is copied, exchanged (at machine.links.net) and updated, computations take their time and compute
nothing. Computation is so much longer than communication as the column says. Two shapes: one whose embedding is as small a part as
that of an 8B model, and GPT-2 124M, whose embedding (a third) is gathered when nothing else can be computed. Needs build/release/sluice
and quiet cores.
"""
import argparse
import itertools
import json
import os
import shutil
import statistics
import tempfile
from pathlib import Path

from random_inputs import make_inputs, run

SMALL = {"hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 12, "num_attention_heads": 12, "num_key_value_heads": 4, "head_dim": 64,
         "vocab_size": 8192, "tie_word_embeddings": True, "max_position_embeddings": 1024}
SHAPES = {"82M, embedding 8 %": ("llama", json.dumps(SMALL), 8192), "GPT-2 124M": ("gpt2", "GPT-2-124M", 50257)}
CASES = [("1", 1, "none", "cpu"), ("2", 2, "none", "cpu"), ("3", 3, "none", "cpu"), ("3 + cpu", 3, "cpu", "cpu")]
RATIOS = [1.25, 2.5]  # of computation to communication. A forward is a quarter of the computation, and in stages 1 and 2 half of the communication
NET = 100e6


def make_config(folder, family, sizes, vocabulary):
    model, tokens = make_inputs(folder, family, sizes, vocabulary)
    config = folder / "config.json"
    config.write_text(json.dumps({
        "model": {"path": str(model)}, "data": {"train": str(tokens), "sequence_length": 256}, "steps": 6,
        "train_micro_batch_size_per_gpu": 2, "optimizer": {"params": {"lr": 1e-5}}, "memory": {"gpu": "6GiB", "host": "2GiB"},
        "execution": {"overlap": "forward", "optimizer_threads": 1, "keep_weights": 0, "device_slots": 2, "boundaries": "gpu",
                      "pools": {"state": 32}}, "run": {"dir": str(folder / "run")},
        "machine": {"device": "cpu", "compute_threads": 1, "links": {"net": f"{NET / 1e6}MB/s"}}}))
    return config


def settings(stage, weights, state, graphs, compute):
    keys = {"zero_optimization.stage": stage, "zero_optimization.offload_param.device": weights, "zero_optimization.offload_optimizer.device": state,
            "execution.keep_graphs": graphs if graphs == "all" else int(graphs),
            "machine.compute": f"{compute / 1e9:.6f}GFLOP/s"}
    return [word for key, value in keys.items() for word in ("--set", f"{key}={json.dumps(value)}")]


def plan(config, cache, *case):
    """The machine is measured once."""
    done = run(["plan", config, "--world", 2, "--json", *settings(*case)], env={**os.environ, "XDG_CACHE_HOME": str(cache)})
    return json.loads(done.stdout)


def measured(config, folder, *case):
    shutil.rmtree(folder / "run", ignore_errors=True)
    run(["train", config, "--nproc", 2, *settings(*case)])
    steps = [line for line in map(json.loads, open(folder / "run/metrics.jsonl")) if "communication" in line][2:]
    shutil.rmtree(folder / "run", ignore_errors=True)
    middle = {key: statistics.median(step["communication"][key] for step in steps) for key in ("seconds", "hidden")}
    return middle, statistics.median(step["step_seconds"] for step in steps)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=list(SHAPES))
    parser.add_argument("--stages", nargs="+", choices=[label for label, *_ in CASES], default=[label for label, *_ in CASES])
    parser.add_argument("--graphs", nargs="+", default=["0"], help="layers whose graphs are kept; without them a forward is computed twice")
    parser.add_argument("--ratios", nargs="+", type=float, default=RATIOS)
    arguments = parser.parse_args()
    table = ["| model | stage | kept graphs | compute / communication | hidden, predicted | hidden, measured | communication s, predicted | measured | step s, predicted | measured |",
             "|" + "---|" * 10]
    folder = Path(tempfile.mkdtemp(prefix="hidden-communication-"))
    try:
        for shape in arguments.shapes:
            shutil.rmtree(folder / "model", ignore_errors=True)
            config = make_config(folder, *SHAPES[shape])
            for label, *tiers in (case for case in CASES if case[0] in arguments.stages):
                for graphs, ratio in itertools.product(arguments.graphs, arguments.ratios):
                    case = [*tiers, graphs]
                    bounds = plan(config, folder / "cache", *case, 1e11)["bounds"]
                    compute = 1e11 * bounds["compute"] / (ratio * bounds["net"])
                    document = plan(config, folder / "cache", *case, compute)
                    communication, seconds = measured(config, folder, *case, compute)
                    expected = document["communication"]
                    table.append(f"| {shape} | {label} | {graphs} | {ratio} | {100 * expected['hidden']:.0f} % | {100 * communication['hidden']:.0f} % | "
                                 f"{expected['seconds']:.2f} | {communication['seconds']:.2f} | {document['step_seconds']:.2f} | {seconds:.2f} |")
                    print(table[-1], flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    (arguments.out / "hidden_communication.md").write_text(
        "# Communication hidden behind computation\n\n`benchmarks/hidden_communication.py`: two ranks on 2 cores, network of "
        f"{NET / 1e6:.0f} MB/s, timing only, overlap forward.\n\"Hidden\": the share of the time in collectives during which the device computes.\n\n"
        + "\n".join(table) + "\n")


if __name__ == "__main__":
    main()
