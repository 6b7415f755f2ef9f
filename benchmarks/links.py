#!/usr/bin/env python3
"""Step time against the bandwidth of each link, predicted and measured, as SVG.

    links.py [--out DIR]     default: benchmarks/results

Needs what scripts/demo makes (work/), build/release/sluice, and quiet cores.
"""
import argparse
from pathlib import Path

from planned_runs import measured, planned

LINKS = {"disk_read": [200, 400, 800, 1600], "disk_write": [200, 400, 800, 1600], "h2d": [100, 200, 400, 1600], "d2h": [50, 100, 200, 800]}
WIDTH, HEIGHT, LEFT, BOTTOM = 360, 260, 52, 44


def panel(x0, link, rates, predicted, real):
    top = 1.1 * max(predicted + real)

    def px(i):
        return x0 + LEFT + i * (WIDTH - LEFT - 24) / (len(rates) - 1)

    def py(seconds):
        return HEIGHT - BOTTOM - seconds / top * (HEIGHT - BOTTOM - 40)

    parts = [f'<text x="{x0 + LEFT}" y="20" font-weight="bold">{link}</text>',
             f'<line x1="{x0 + LEFT}" x2="{x0 + WIDTH - 16}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM}" stroke="#555"/>']
    for k in range(5):
        y = py(top * k / 5)
        parts.append(f'<line x1="{x0 + LEFT}" x2="{x0 + WIDTH - 16}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
                     f'<text x="{x0 + LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" fill="#555">{top * k / 5:.1f}</text>')
    for i, rate in enumerate(rates):
        parts.append(f'<text x="{px(i):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle" fill="#555">{rate / 1000:g}</text>')
    line = " ".join(f"{px(i):.1f},{py(s):.1f}" for i, s in enumerate(predicted))
    parts.append(f'<polyline points="{line}" fill="none" stroke="#0072b2" stroke-width="2"/>')
    parts += [f'<circle cx="{px(i):.1f}" cy="{py(s):.1f}" r="4" fill="#d55e00"/>' for i, s in enumerate(real)]
    parts.append(f'<text x="{x0 + WIDTH - 16}" y="{HEIGHT - 8}" text-anchor="end" fill="#555">GB/s</text>')
    return "\n".join(parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    tiers = {"zero_optimization.offload_param.device": "nvme", "zero_optimization.offload_optimizer.device": "nvme", "execution.overlap": "forward"}
    panels, table = [], ["| link | GB/s | predicted s | measured s |", "|---|---|---|---|"]
    for n, (link, rates) in enumerate(LINKS.items()):
        predicted, real = [], []
        for rate in rates:
            settings = {**tiers, f"machine.links.{link}": f"{rate}MB/s"}
            predicted.append(planned(settings)["step_seconds"])
            real.append(measured(settings))
            table.append(f"| {link} | {rate / 1000:g} | {predicted[-1]:.2f} | {real[-1]:.2f} |")
            print(table[-1], flush=True)
        panels.append(panel(n * WIDTH, link, rates, predicted, real))
    width = WIDTH * len(LINKS)
    (arguments.out / "links.svg").write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT + 24}" width="{width}" height="{HEIGHT + 24}" '
        f'font-family="sans-serif" font-size="12"><rect width="{width}" height="{HEIGHT + 24}" fill="#fff"/>\n' + "\n".join(panels) +
        f'\n<text x="{LEFT}" y="{HEIGHT + 16}">Seconds of a step; line: predicted, dots: measured. SmolLM2-135M, all on nvme, overlap forward.</text></svg>\n')
    (arguments.out / "links.md").write_text("# Step time against the bandwidth of each link\n\n![](links.svg)\n\n" + "\n".join(table) + "\n")


if __name__ == "__main__":
    main()
