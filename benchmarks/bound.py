#!/usr/bin/env python3
"""Steady steps beside the bound of the busiest resource, with links and computation emulated so that each binds in turn.

    bound.py [--out FILE.md]

Timing only (machine.compute): every byte is read, copied, updated and written, at the emulated rates; computations take their time and
compute nothing. Needs what scripts/demo makes (work/) and build/release/sluice.
"""
import argparse
from pathlib import Path

from planned_runs import measured, planned

TIERS = {"zero_optimization.offload_param.device": "nvme", "zero_optimization.offload_optimizer.device": "nvme"}
SPREAD = {"execution.overlap": "spread", "execution.pools.state": 64}


def rates(disk, h2d, d2h, compute, **more):
    return {**TIERS, "machine.links.disk_read": f"{disk}MB/s", "machine.links.disk_write": f"{disk}MB/s", "machine.links.h2d": f"{h2d}MB/s",
            "machine.links.d2h": f"{d2h}MB/s", "machine.compute": f"{compute}GFLOP/s", **more}


# What schedule.md's model gives for this shape (135M, all on nvme, spread a quarter): 1.05 to 1.08 transfer-bound and balanced, 1.01 to 1.02
# compute-bound.
CASES = {
    "disk binds": rates(400, 4000, 4000, 420, **SPREAD),
    "PCIe binds, to the device": rates(1600, 100, 4000, 450, **SPREAD),
    "PCIe binds, from the device": rates(1600, 4000, 65, 450, **SPREAD),
    "PCIe binds, both ways": rates(1600, 100, 100, 450, **SPREAD),
    "compute binds": rates(1600, 4000, 4000, 104, **SPREAD),
    "disk and compute balanced": rates(400, 4000, 4000, 104, **SPREAD),
    "disk and compute balanced; forward": rates(400, 4000, 4000, 104, **{"execution.overlap": "forward"}),
    "disk and compute balanced; none": rates(400, 4000, 4000, 104, **{"execution.overlap": "none"}),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    lines = ["| case | bound s | by | predicted / bound | measured / bound |", "|---|---|---|---|---|"]
    for name, settings in CASES.items():
        plan, seconds = planned(settings), measured(settings)
        bound = max(plan["bounds"].values())
        lines.append(f"| {name} | {bound:.2f} | {plan['bottleneck']} | {plan['step_seconds'] / bound:.2f} | {seconds / bound:.2f} |")
        print(lines[-1], flush=True)
    if arguments.out:
        arguments.out.write_text("# Steps beside their bound\n\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
