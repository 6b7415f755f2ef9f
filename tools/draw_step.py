#!/usr/bin/env python3
"""Draws one step of a trace (`sluice train --trace FILE`) as an SVG: a row per lane, a box per operation.

    draw_step.py TRACE OUT.svg [--step N] [--width PIXELS]

The trace is of a real run, so the picture is of the plan as it was executed.
"""
import argparse
import json
from pathlib import Path

LANES = [("disk_weights", "read weights"), ("disk_state", "read state"), ("h2d", "copy in"), ("compute", "compute"),
         ("d2h", "copy out"), ("update", "update"), ("disk_write_weights", "write weights"), ("disk_write_state", "write state"),
         ("commit", "commit")]
COLOURS = {"Forward": "#4c9be8", "Loss": "#e8a33d", "Backward": "#2f6fb5", "Norm": "#9bc995", "Gate": "#d1495b", "Update": "#3d8b4f",
           "Flush": "#d1495b", "Agree": "#d1495b", "Publish": "#8c2f39", "CopyIn": "#a68ad9", "CopyOut": "#7d5fb8",
           "ReadWeights": "#c98b5e", "ReadState": "#b0723f", "WriteWeights": "#6b7f99", "WriteState": "#4e6079"}
LEFT, ROW, GAP, TOP = 110, 26, 6, 46


def load(path):
    events = json.loads(Path(path).read_text())
    events = events["traceEvents"] if isinstance(events, dict) else events
    rows = {e["tid"]: e["args"]["name"] for e in events if e.get("ph") == "M" and e["name"] == "thread_name"}
    return [(rows.get(e["tid"], str(e["tid"])), e["name"], e["ts"] / 1e6, e["dur"] / 1e6) for e in events if e.get("ph") == "X"]


def pick(spans, step):
    """From the first Forward of the step to the Publish after it, or to the next step's first Forward."""
    starts = sorted(b for lane, name, b, _ in spans if lane == "compute" and name.startswith("Forward 0.0"))
    begin = starts[step]
    ends = [b + d for _, name, b, d in spans if name.startswith("Publish") and b > begin]
    after = starts[step + 1] if step + 1 < len(starts) else float("inf")
    end = max(min(ends, default=after), min(after, begin + 1e9) if after < float("inf") else 0)
    return begin, end


def svg(spans, begin, end, width):
    scale = (width - LEFT - 12) / (end - begin)
    height = TOP + len(LANES) * (ROW + GAP) + 34
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
           'font-family="sans-serif" font-size="12">', f'<rect width="{width}" height="{height}" fill="white"/>',
           f'<text x="12" y="24" font-size="15">One step, {end - begin:.2f} s: every lane as it ran</text>']
    for number, (lane, label) in enumerate(LANES):
        y = TOP + number * (ROW + GAP)
        out.append(f'<text x="12" y="{y + 17}">{label}</text>')
        out.append(f'<rect x="{LEFT}" y="{y}" width="{width - LEFT - 12}" height="{ROW}" fill="#f3f4f6"/>')
        # A lane with several operations in flight has a row of the trace for each: "disk_state 0", "disk_state 1", ...
        rows = sorted({row for row, *_ in spans if row == lane or row.rsplit(" ", 1)[0] == lane})
        high = ROW / max(len(rows), 1)
        for row, name, b, d in spans:
            if row not in rows or b + d < begin or b > end:
                continue
            x0, x1 = max(b, begin), min(b + d, end)
            colour = COLOURS.get(name.split()[0], "#8a94a6")
            out.append(f'<rect x="{LEFT + (x0 - begin) * scale:.2f}" y="{y + rows.index(row) * high:.2f}" '
                       f'width="{max((x1 - x0) * scale - 0.3, 0.4):.2f}" height="{high:.2f}" fill="{colour}"/>')
    y = TOP + len(LANES) * (ROW + GAP) + 18
    x = LEFT
    for name in ("Forward", "Loss", "Backward", "Norm", "Update", "Gate", "CopyIn", "CopyOut", "ReadState", "WriteState"):
        out.append(f'<rect x="{x}" y="{y - 10}" width="11" height="11" fill="{COLOURS[name]}"/><text x="{x + 15}" y="{y}">{name}</text>')
        x += 30 + 8 * len(name)
    return "\n".join(out + ["</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("out", type=Path)
    parser.add_argument("--step", type=int, default=1, help="which step of the trace, from 0 (default 1: the first full cycle)")
    parser.add_argument("--width", type=int, default=1100)
    arguments = parser.parse_args()
    spans = load(arguments.trace)
    arguments.out.write_text(svg(spans, *pick(spans, arguments.step), arguments.width))


if __name__ == "__main__":
    main()
