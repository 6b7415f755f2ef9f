"""Short runs of SmolLM2-135M beside what `sluice plan` says of them; shared by prediction.py and links.py."""
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SLUICE, CONFIG, RUN = "build/release/sluice", "configs/smollm2-135m-nvme.json", "runs/planned"
BASE = {"run.dir": RUN, "steps": 7, "scheduler": None, "gradient_clipping": 0, "data.sequence_length": 256,
        "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1, "memory.gpu": "6GiB", "memory.host": "6GiB",
        # Else they are chosen for each machine: with RAM to spare, what is on NVMe would hardly be read.
        "memory.pinned": 0, "execution.pools.state": 32, "execution.keep_graphs": 0, "execution.keep_weights": 0, "execution.device_slots": 2,
        "execution.boundaries": "gpu"}


def command(verb, settings, extra=()):
    words = [SLUICE, verb, CONFIG, *extra]
    for key, value in {**BASE, **settings}.items():
        words += ["--set", f"{key}={json.dumps(value)}"]
    return words


def planned(settings, kept=False):
    """What `sluice plan` says, the machine measured just now: shared ones are not as fast at all times. kept: for the runs that follow, too."""
    with tempfile.TemporaryDirectory() as cache:
        env = os.environ if kept else {**os.environ, "XDG_CACHE_HOME": cache}
        done = subprocess.run(command("plan", settings, ["--json", "--measure"]), cwd=ROOT, capture_output=True, text=True, env=env)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def measured(settings):
    """Median seconds of the steps after the second."""
    return measured_with_peak(settings)[0]


def measured_with_peak(settings):
    """The same, and the peaks of device memory and of the host budget less what the run's own plan said, in bytes."""
    shutil.rmtree(ROOT / RUN, ignore_errors=True)
    done = subprocess.run(command("train", settings), cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    steps = [line for line in map(json.loads, open(ROOT / RUN / "metrics.jsonl")) if "step_seconds" in line]
    memory = json.loads((ROOT / RUN / "memory.json").read_text())
    shutil.rmtree(ROOT / RUN, ignore_errors=True)
    beyond = {place: memory["peak"][place] - sum(row["need"] for row in memory["rows"] if row["place"] == place and not row["beside"])
              for place in ("gpu", "host")}
    return statistics.median(step["step_seconds"] for step in steps[2:-1]), beyond
