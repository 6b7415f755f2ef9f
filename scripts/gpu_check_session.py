"""The machinery of gpu-check: where the programs are, running them within their time, and the result files."""
import glob
import json
import math
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import namedtuple
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROGRAMS = {"sluice": "sluice", "cuda_device_test": "tests/gpu/cuda_device_test", "engine_gpu_test": "tests/engine/engine_gpu_test",
            "comm_gpu_test": "tests/engine/comm/comm_gpu_test", "cuda_rank_program": "tests/engine/comm/cuda_rank_program",
            "gpu_bench": "benchmarks/gpu_bench"}
TO_DIE = 10  # seconds that a killed program may take: one that hangs in the driver never ends


class Skip(Exception):
    """A check that cannot run here; the text says why."""


class Failed(Exception):
    """A check that found a fault, or did not come to its end; the text says which."""


class Place:
    """Where programs, libraries and test models are: a build tree or an unpacked bundle."""

    def __init__(self, build, torch):
        bundle = HERE / "bin"
        self.is_bundle = bundle.is_dir()
        self.programs = {n: (bundle / n if self.is_bundle else build / p) for n, p in PROGRAMS.items()}
        self.test_models = HERE / "test_models" if self.is_bundle else build.parent / "test_models"
        self.torch = torch or find_torch()
        self.environment = dict(os.environ)
        paths = [HERE / "lib"] if self.is_bundle else []
        if self.torch:
            site = self.torch.parent.parent
            paths += [self.torch, *sorted(site.glob("nvidia/*/lib"))]
        paths += [Path(p) for p in ("/usr/local/cuda/lib64",) if os.path.isdir(p)]
        old = self.environment.get("LD_LIBRARY_PATH")
        self.environment["LD_LIBRARY_PATH"] = ":".join([*map(str, paths), *([old] if old else [])])
        self.environment["SLUICE_TEST_MODELS"] = str(self.test_models)

    def program(self, name):
        path = self.programs[name]
        if not path.is_file():
            raise Skip(f"{path} is not there (a build without CUDA, or not built)")
        return str(path)


def find_torch():
    """The lib folder of a torch package: beside the sources, or of any Python found here."""
    candidates = glob.glob(str(HERE.parent / ".venv/lib/python3*/site-packages/torch/lib"))
    for python in dict.fromkeys(filter(None, (shutil.which("python3"), shutil.which("python"), sys.executable))):
        try:
            found = subprocess.run([python, "-c", "import importlib.util as u; s = u.find_spec('torch'); print(s.origin if s else '')"],
                                   text=True, capture_output=True, timeout=20)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if found.returncode == 0 and found.stdout.strip():
            candidates.append(str(Path(found.stdout.strip()).parent / "lib"))
    return next((Path(c) for c in candidates if (Path(c) / "libtorch_cuda.so").exists()), None)


# late: seconds after which it was ended, when it had not ended by itself.
Ended = namedtuple("Ended", "name code out err late")


def last_line(text):
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no output"


def wait_for(process, seconds):
    """Has it ended?"""
    try:
        process.wait(max(0, seconds))
        return True
    except subprocess.TimeoutExpired:
        return False


def signal_group(process, number):
    """To the program and what it has started: it has a process group of its own."""
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        pass


def text_of(file):
    file.seek(0)
    return file.read()


def finite(value):
    """The same, as JSON can say it."""
    if isinstance(value, dict):
        return {str(k): finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def cell(value):
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return re.sub(r"[\x00-\x1f]+", " ", text).replace("|", "/")


class Session:
    """The checks of one run: what they found, and how much time is left. Both files are there from the first check on, and after each one."""

    def __init__(self, place, out, seconds):
        self.place, self.out = place, out
        self.deadline = self.until = time.monotonic() + seconds  # until: of the check at work
        self.checks, self.raw = [], {}
        self.cache = tempfile.TemporaryDirectory(prefix="gpu-check-")  # of machine profiles: this machine is measured anew
        place.environment["XDG_CACHE_HOME"] = self.cache.name
        self.no_gpu = None  # why
        self.at_work = None  # name of a check

    def left(self):
        return self.deadline - time.monotonic()

    def need_gpu(self):
        if self.no_gpu:
            raise Skip(self.no_gpu)

    def run(self, command, need=5, most=math.inf, grace=0):
        """Runs a program until it ends, or its time is over: the check's, or `most`. Then it gets a SIGTERM when it has a grace, in seconds."""
        if self.left() < need:
            raise Skip(f"out of time: {need:.0f} s are needed, {max(0, self.left()):.0f} s are left")
        name, begin = Path(command[0]).name, time.monotonic()
        seconds = min(self.until - begin, most)
        # Into files: a pipe would stay open as long as anything that the program has started.
        with tempfile.TemporaryFile("w+", errors="replace") as out, tempfile.TemporaryFile("w+", errors="replace") as err:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=self.place.environment, start_new_session=True)
            late = None
            try:
                if not wait_for(process, seconds):
                    late = time.monotonic() - begin
                    if grace:
                        signal_group(process, signal.SIGTERM)
                        wait_for(process, grace)
            finally:
                signal_group(process, signal.SIGKILL)
                if not wait_for(process, TO_DIE):
                    self.no_gpu = f"{name} cannot be ended, so the driver hangs: see dmesg"
            return Ended(name, process.returncode, text_of(out), text_of(err), late)

    def run_to_end(self, command, need=5, most=math.inf):
        """A program that must end well."""
        ended = self.run(command, need, most)
        if ended.late or ended.code != 0:
            raise Failed(self.how(ended))
        return ended

    def how(self, ended):
        if ended.late and self.left() < 1:
            return f"out of time: {ended.name} was ended after {ended.late:.0f} s: {last_line(ended.err + ended.out)}"
        if ended.late:
            return f"{ended.name} did not end within {ended.late:.0f} s: {last_line(ended.err + ended.out)}"
        how = f"was killed by {signal.Signals(-ended.code).name}" if ended.code < 0 else f"ended with {ended.code}"
        return f"{ended.name} {how}: {last_line(ended.err + ended.out)}"

    def check(self, name, seconds, function):
        """function() returns what it found; it may take so many seconds. Whatever happens in it, the checks after it have their turn."""
        begin = time.monotonic()
        self.until, self.at_work = min(self.deadline, begin + seconds), name
        try:
            status, summary = "passed", function()
        except Skip as reason:
            status, summary = "skipped", str(reason)
        except Failed as fault:
            status, summary = "failed", str(fault)
        except Exception as error:  # noqa: BLE001
            status, summary = "failed", f"{type(error).__name__}: {error}"
        self.checks.append({"name": name, "status": status, "summary": summary, "seconds": round(time.monotonic() - begin, 2)})
        print(f"{status:8} {name}: {summary}", flush=True)
        self.at_work = None
        self.write()

    def counts(self):
        return {s: sum(c["status"] == s for c in self.checks) for s in ("passed", "failed", "skipped")}

    def write(self, complete=False):
        """Over the files of before, which stay whole until the new ones are."""
        document = finite({"format": 2, "complete": complete, "at_work": self.at_work, "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                           "machine": platform.platform(), "counts": self.counts(), "checks": self.checks, "raw": self.raw})
        for file, text in (("gpu-check.json", json.dumps(document, indent=1, allow_nan=False, default=str) + "\n"), ("gpu-check.md", self.markdown(document))):
            (self.out / f".{file}").write_text(text)
            os.replace(self.out / f".{file}", self.out / file)

    def markdown(self, document):
        counts = document["counts"]
        lines = ["# gpu-check", "", f"{document['when']}, {document['machine']}: {counts['passed']} passed, {counts['failed']} failed, "
                 f"{counts['skipped']} skipped"]
        if not document["complete"]:
            lines += ["", f"**Not complete**{': ended while at ' + document['at_work'] if document['at_work'] else ''}."]
        lines += ["", "| check | status | seconds | found |", "|---|---|---|---|"]
        lines += [f"| {c['name']} | {c['status']} | {c['seconds']} | {cell(c['summary'])} |" for c in document["checks"]]
        for name, rows in (("Copies", self.raw.get("rates", {}).get("copies")), ("Layers", self.raw.get("rates", {}).get("layers")),
                           ("Runs", self.raw.get("runs"))):
            if rows:
                lines += ["", f"## {name}", "", "| " + " | ".join(rows[0]) + " |", "|" + "---|" * len(rows[0])]
                lines += ["| " + " | ".join(cell(v) for v in row.values()) + " |" for row in rows]
        return "\n".join([*lines, "", "Raw numbers are in gpu-check.json."]) + "\n"
