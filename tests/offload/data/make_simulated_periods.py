#!/usr/bin/env python3
"""Writes simulated_periods.json: step times by an independent model of the schedule.

make_simulated_periods.py MODELS_DIR > simulated_periods.json      MODELS_DIR holds schedule_sim.py and schedule_plan.py
"""
import json
import sys

sys.path.insert(0, sys.argv[1])
import schedule_plan as plans  # noqa: E402
import schedule_sim as model  # noqa: E402

LANES = {"disk_weights": plans.DW, "disk_state": plans.DS, "disk_write_state": plans.WR, "disk_write_weights": plans.WW,
         "h2d": plans.HD, "d2h": plans.DH, "compute": plans.CO, "update": plans.UP}
PLACE = {"none": ("none", 0), "forward": ("forward", 0), "backward": ("backward", 0), "spread": ("split", .25)}
ALL = tuple(PLACE)


def case(name, box, tier, placement, x, micro=1, width=4, **pools):
    """x: tokens per step, as a multiple of those at which compute equals the largest other bound."""
    m, tokens = plans.MODELS[name], model.t_star(name, plans.BOXES[box], tier) * x
    place, defer = PLACE[placement]
    p = plans.build(name, tokens, micro, place, tier, defer=defer, norm_first=False)
    sizes = model.std_pools(p, G=len(p.bufs["G"]), T=max(1, len(p.bufs["T"])), **pools)
    periods = 16 if name == "135M" else 8  # the first ones fill pools, which are large beside a small model
    result = model.simulate(p, plans.BOXES[box], sizes, width=width, K=periods)
    assert result["ok"]
    ends = [result["stamp"][k, p.last_compute] for k in range(periods)]
    period = (ends[-1] - ends[-4]) / 3
    bound = plans.bound(p, plans.BOXES[box])
    return dict(model=name, box=box, tier=tier, placement=placement, tokens=tokens, micro=micro, width=width, weights=sizes["W"],
                state=sizes["S"], device_slots=sizes["D"], period=round(period, 6), bound=round(max(bound.values()), 6),
                busy={lane: round(result["busy"][i], 4) for lane, i in LANES.items()},
                shape=dict(embedding=int(m["emb"]), layer=int(m["layer"]), head=int(m["head"]), layers=m["L"]))


def cases():
    for placement in ALL:
        for x in (.25, 1, 4):
            yield case("3B", "4090", "nvme", placement, x)
            yield case("135M", "4090", "nvme", placement, x)
            yield case("135M", "2core", "nvme", placement, x)
        yield case("3B", "4090", "wram", placement, 1)
        yield case("3B", "2core", "nvme", placement, 1)
        yield case("8B", "4090", "nvme", placement, 1)
        yield case("3B", "4090", "nvme", placement, 1, S=8)
        yield case("3B", "4090", "nvme", placement, 1, S=16, D=2)
        yield case("3B", "slowadam", "wram", placement, 1)
        yield case("135M", "4090", "nvme", placement, 1, micro=4)
    for placement in ("none", "forward"):  # without a second slot nothing is updated on a guess
        for box in ("4090", "2core", "slowlink", "slowadam"):
            yield case("3B", box, "ram", placement, 1)
    yield case("3B", "4090", "nvme", "backward", 1, S=256)
    yield case("3B", "4090", "nvme", "backward", 1, width=1)
    yield case("3B", "4090", "nvme", "forward", .25, width=2)


boxes = {name: {k: v for k, v in box.items()} for name, box in plans.BOXES.items()}
print(json.dumps(dict(about="Steady step times and busy shares of lanes from an independent model of the schedule; made by "
                            "make_simulated_periods.py. Rates in GB/s, Gparam/s (adam), TFLOP/s and seconds.",
                      boxes=boxes, latency=dict(disk=1e-4, copy=2e-5, update=2e-5), cases=list(cases())), indent=1))
