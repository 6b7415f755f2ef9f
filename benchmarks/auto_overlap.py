#!/usr/bin/env python3
"""overlap "auto" beside "none": steps of SmolLM2-135M with clipping on but rarely active, the two alternating.

    auto_overlap.py [--rounds N] [--out FILE.md]

The disk is throttled so that its part of a step takes as long as computation in the balanced row. Needs what scripts/demo makes (work/),
build/release/sluice, and quiet cores. The machine is measured by `sluice plan`; "auto" is what the simulator chooses with that.
"""
import argparse
import statistics
from pathlib import Path

from planned_runs import measured, planned

PARAM, STATE, OVERLAP = "zero_optimization.offload_param.device", "zero_optimization.offload_optimizer.device", "execution.overlap"
CLIP = {"gradient_clipping": 20.0}  # norms of the first steps are 4 to 8


def disk(read, write):
    return {PARAM: "nvme", STATE: "nvme", "machine.links.disk_read": f"{read}MB/s", "machine.links.disk_write": f"{write}MB/s", **CLIP}


CASES = {
    "nvme, disk and compute balanced": disk(1100, 1100),
    "nvme, disk binds": disk(400, 400),
    "nvme, drive as it is": {PARAM: "nvme", STATE: "nvme", **CLIP},
    "nvme, drive as it is; accumulation 4": {PARAM: "nvme", STATE: "nvme", "gradient_accumulation_steps": 4, **CLIP},
    "cpu": {PARAM: "cpu", STATE: "cpu", "storage.durable": "checkpoint", **CLIP},
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    lines = ["| case | auto chose | none s | auto s | none / auto |", "|---|---|---|---|---|"]
    for name, settings in CASES.items():
        chosen = planned({**settings, OVERLAP: "auto"}, kept=True)["overlap"]  # the runs choose by what was measured
        none, auto = [], []
        for _ in range(arguments.rounds):
            none.append(measured({**settings, OVERLAP: "none"}))
            auto.append(measured({**settings, OVERLAP: "auto"}))
        a, b = statistics.median(none), statistics.median(auto)
        lines.append(f"| {name} | {chosen} | {a:.2f} | {b:.2f} | {a / b:.2f} |")
        print(lines[-1], flush=True)
    if arguments.out:
        arguments.out.write_text("# overlap auto beside none\n\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
