#!/usr/bin/env python3
"""Predicted beside measured step times of twelve configurations on SmolLM2-135M: tiers, accumulation, overlap, throttled links.

    prediction.py [--out FILE.md]

Needs what scripts/demo makes (work/), build/release/sluice, and quiet cores. The machine is measured by `sluice plan` before each run.
"""
import argparse
from pathlib import Path

from planned_runs import measured_with_peak, planned

PARAM, STATE = "zero_optimization.offload_param.device", "zero_optimization.offload_optimizer.device"
ACCUMULATION, OVERLAP = "gradient_accumulation_steps", "execution.overlap"


def tiers(param, state, **more):
    return {PARAM: param, STATE: state, "storage.durable": "step" if state == "nvme" else "checkpoint", **more}


CONFIGURATIONS = {
    "none, none": tiers("none", "none", **{OVERLAP: "none"}),
    "none, cpu; forward": tiers("none", "cpu", **{OVERLAP: "forward"}),
    "cpu, cpu": tiers("cpu", "cpu", **{OVERLAP: "none"}),
    "cpu, cpu; forward; accumulation 4": tiers("cpu", "cpu", **{OVERLAP: "forward", ACCUMULATION: 4}),
    "cpu, nvme; forward": tiers("cpu", "nvme", **{OVERLAP: "forward"}),
    "nvme, nvme": tiers("nvme", "nvme", **{OVERLAP: "none"}),
    "nvme, nvme; forward": tiers("nvme", "nvme", **{OVERLAP: "forward"}),
    "nvme, nvme; backward": tiers("nvme", "nvme", **{OVERLAP: "backward"}),
    "nvme, nvme; spread; accumulation 4": tiers("nvme", "nvme", **{OVERLAP: "spread", ACCUMULATION: 4}),
    "nvme, nvme; disk read 0.5 GB/s": tiers("nvme", "nvme", **{OVERLAP: "none", "machine.links.disk_read": "500MB/s"}),
    "nvme, nvme; spread; disk write 0.4 GB/s": tiers("nvme", "nvme", **{OVERLAP: "spread", "machine.links.disk_write": "400MB/s"}),
    "cpu, cpu; forward; link 0.3 GB/s": tiers("cpu", "cpu", **{OVERLAP: "forward", "machine.links.h2d": "300MB/s", "machine.links.d2h": "300MB/s"}),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    lines = ["| weights, state; setting | predicted s | measured s | predicted / measured | bottleneck | peak of gpu, host beyond plan |", "|---|---|---|---|---|---|"]
    good = 0
    for name, settings in CONFIGURATIONS.items():
        plan = planned(settings)
        seconds, beyond = measured_with_peak(settings)
        ratio = plan["step_seconds"] / seconds
        good += 0.9 <= ratio <= 1.1
        lines.append(f"| {name} | {plan['step_seconds']:.2f} | {seconds:.2f} | {ratio:.2f} | {plan['bottleneck']} | {beyond['gpu']} B, {beyond['host']} B |")
        print(lines[-1], flush=True)
    lines.append(f"\n{good} of {len(CONFIGURATIONS)} within 10 %.")
    print(lines[-1])
    if arguments.out:
        arguments.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
