#!/usr/bin/env python3
"""What scripts/gpu-check does when its programs hang, crash, or say odd things, on a machine with a GPU: programs that pretend.
gpu_check_parts_test.py SOURCE_DIR"""
import contextlib
import fnmatch
import importlib.util
import io
import json
import os
import re
import signal
import sys
import tempfile
import time
from importlib.machinery import SourceFileLoader
from pathlib import Path

source = Path(sys.argv[1]).resolve()
sys.dont_write_bytecode = True
loader = SourceFileLoader("gpu_check", str(source / "scripts/gpu-check"))
gpu_check = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_check", loader))
loader.exec_module(gpu_check)
models = gpu_check.models
problems = []

DOCTOR = {"findings": [{"section": "GPU", "name": "NVIDIA driver", "value": "580", "status": "ok"},
                       {"section": "GPU 0", "name": "device", "value": "NVIDIA H100 | 80GB", "status": "ok"}]}
STEP = {"step_seconds": 0.5, "tokens_per_s": 100.0, "loss": float("nan"),
        "memory": {"gpu_peak": 300 << 20, "gpu_temporaries_peak": 100 << 20, "gpu_reserved_peak": 120 << 20}}
MEMORY = {"rows": [{"place": "gpu", "purpose": "all", "need": 310 << 20, "beside": False}, {"place": "gpu", "purpose": "runtime", "need": 400 << 20, "beside": True}]}
OK = "[ RUN      ] Suite/A.Passes/0\n[       OK ] Suite/A.Passes/0 (1 ms)\n"


def expect(condition, text):
    if not condition:
        problems.append(text)


class Programs:
    """A build tree of shell scripts."""

    def __init__(self, folder):
        self.build = Path(folder) / "build/release"
        self.place = gpu_check.Place(self.build, Path(folder))

    def write(self, name, text):
        path = self.place.programs[name]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/bash\n" + text)
        path.chmod(0o755)

    def write_sluice(self, steps, end):
        """A run of so many steps; `end` is what comes then."""
        lines = "\n".join([json.dumps(STEP)] * steps)
        self.write("sluice", f"""
case $1 in
doctor) echo '{json.dumps(DOCTOR)}';;
plan) echo '{{"step_seconds": 0.4, "machine": {{"name": "h100"}}}}';;
train) run=$(sed 's/.*"dir": "\\([^"]*\\)".*/\\1/' "$2"); mkdir "$run"; echo '{json.dumps(MEMORY)}' >"$run/memory.json"
  printf '%s\\n' '{lines}' '{{"step_sec' >"$run/metrics.jsonl"; {end};;
esac""")


def run(programs, folder, seconds, checks):
    """The checks' results by name, the document and the Markdown."""
    out = Path(folder) / "out"
    out.mkdir(exist_ok=True)
    session = gpu_check.Session(programs.place, out, seconds)
    with contextlib.redirect_stdout(io.StringIO()):
        checks(session)
        session.write(complete=True)
    document = json.loads((out / "gpu-check.json").read_text(), parse_constant=lambda name: expect(False, f"{name} is no JSON"))
    return {c["name"]: c for c in document["checks"]}, document, (out / "gpu-check.md").read_text()


def gone(pid):
    for _ in range(50):
        try:
            if "State:\tZ" in Path(f"/proc/{pid}/status").read_text():
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.02)
    return False


def a_hang_and_a_crash_cost_their_own_part_only():
    with tempfile.TemporaryDirectory() as folder:
        programs = Programs(folder)
        programs.write_sluice(3, "exit 0")
        child = Path(folder) / "child"
        programs.write("cuda_device_test", f"echo '{OK}[ RUN      ] A.Hangs'; sleep 60 & echo $! >{child}; sleep 60")
        programs.write("comm_gpu_test", f"echo '{OK}[ RUN      ] A.Crashes'; kill -SEGV $$")
        programs.write("engine_gpu_test", f"echo '{OK}'; exit 1")
        programs.write("gpu_bench", "echo '{'")

        def checks(session):
            session.check("machine", 5, lambda: gpu_check.machine(session))
            session.check("hangs", 0.5, lambda: gpu_check.google_test(session, "cuda_device_test", "*", 1))
            session.check("crashes", 5, lambda: gpu_check.google_test(session, "comm_gpu_test", "*", 1))
            session.check("says nothing", 5, lambda: gpu_check.google_test(session, "engine_gpu_test", "*", 1))
            session.check("rates", 5, lambda: gpu_check.rates(session))
            session.check("a fault of the script", 5, lambda: {}["key"])
            session.check("a run", 5, lambda: gpu_check.tiny_run(session))
            session.check("memory", 5, lambda: gpu_check.memory(session))
            session.check("times", 5, lambda: gpu_check.predictions(session))

        begin = time.monotonic()
        found, document, markdown = run(programs, folder, 60, checks)
        expect(time.monotonic() - begin < 15, "a program that hangs held up the others")
        statuses = {name: check["status"] for name, check in found.items()}
        expect(statuses == {"machine": "passed", "hangs": "failed", "crashes": "failed", "says nothing": "failed", "rates": "failed",
                            "a fault of the script": "failed", "a run": "passed", "memory": "failed", "times": "passed"}, f"{statuses}, {found}")
        expect(re.search(r"1 passed, 1 failed.*A\.Hangs.*did not end within", found["hangs"]["summary"]), found["hangs"])
        expect(re.search(r"A\.Crashes.*killed by SIGSEGV", found["crashes"]["summary"]), found["crashes"])
        expect("over 3 steps" in found["a run"]["summary"], found["a run"])
        # 200 arenas and 120 held are 10 more than the 310 planned; the runtime is beside both.
        expect("720 MiB" in found["memory"]["summary"] and "planned 710" in found["memory"]["summary"], found["memory"])
        expect("0.5 s, planned 0.4 s" in found["times"]["summary"], found["times"])
        expect(gone(int(child.read_text())), "what a program had started is still there")
        expect("NVIDIA H100 / 80GB" in markdown and "## Runs" in markdown, markdown)
        expect(document["complete"] and document["raw"]["training"]["tiny"]["metrics"][0]["loss"] is None, document)


def a_machine_that_cannot_be_measured_is_a_failure():
    profile = {"compute": {"rate": "400TFLOP/s", "memory_rate": "4TB/s", "enqueue": 6e-6}, "copy": {"h2d": "50GB/s", "d2h": "51GB/s", "both": "90GB/s"}}
    for error, status, part in ((None, "passed", "90GB/s both ways, device memory 4TB/s, 6.0 us"), ("sluice: no", "failed", "sluice: no")):
        with tempfile.TemporaryDirectory() as folder:
            programs = Programs(folder)

            def checks(session):
                plan = {"error": error} if error else {"step_seconds": 0.4}
                session.raw.update(training={"tiny": {"plan": plan}}, runs=[{"run": "tiny", "step_seconds": 0.5, "planned_seconds": 0.4}], profiles=[profile])
                session.check("times", 5, lambda: gpu_check.predictions(session))

            found, _, _ = run(programs, folder, 60, checks)
            expect(found["times"]["status"] == status and part in found["times"]["summary"], found["times"])


def a_run_whose_time_is_over_counts_with_the_steps_it_has_done():
    for steps, status in ((2, "passed"), (1, "skipped"), (0, "failed")):
        with tempfile.TemporaryDirectory() as folder:
            programs = Programs(folder)
            programs.write_sluice(steps, "sleep 60 & wait")
            found, _, _ = run(programs, folder, 60, lambda session: session.check("a run", 0.5, lambda: gpu_check.tiny_run(session)))
            expect(found["a run"]["status"] == status, found["a run"])


def what_there_is_no_room_for_is_skipped():
    with tempfile.TemporaryDirectory() as folder:
        programs = Programs(folder)
        programs.write_sluice(0, "echo 'the run needs 9 GiB' >&2; exit 6")
        found, _, _ = run(programs, folder, 60, lambda session: session.check("a run", 5, lambda: gpu_check.tiny_run(session)))
        expect(found["a run"]["status"] == "skipped" and "9 GiB" in found["a run"]["summary"], found["a run"])


def without_time_everything_is_skipped_and_said():
    with tempfile.TemporaryDirectory() as folder:
        programs = Programs(folder)
        programs.write_sluice(3, "exit 0")
        found, document, _ = run(programs, folder, 0.5, gpu_check.all_checks)
        expect(all(c["status"] == "skipped" for c in found.values()), found)
        expect(len(found) >= 18 and document["counts"]["skipped"] == len(found), document["counts"])


def what_was_found_stays_when_it_is_ended():
    with tempfile.TemporaryDirectory() as folder:
        programs = Programs(folder)
        programs.write_sluice(3, "exit 0")
        programs.write("cuda_device_test", "kill -TERM $PPID; sleep 60")
        out = Path(folder) / "out"
        pid = os.fork()
        if pid == 0:
            sys.argv = ["gpu-check", "--build", str(programs.build), "--torch", folder, "--out", str(out)]
            with contextlib.redirect_stdout(io.StringIO()):
                try:
                    gpu_check.main()
                except SystemExit as ended:
                    os._exit(ended.code)
            os._exit(0)
        expect(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 143, "a SIGTERM did not end it")
        document = json.loads((out / "gpu-check.json").read_text())
        expect([c["name"] for c in document["checks"]] == ["machine"] and not document["complete"], document)
        expect(document["at_work"].startswith("device contract") and "**Not complete**" in (out / "gpu-check.md").read_text(), document["at_work"])


def layers_are_as_many_as_fit():
    plenty = 1 << 50
    os.sched_getaffinity = lambda _: range(64)
    expect(models.shortage("7B", 32, "nvme", plenty, plenty, 1e12, 60) is None, "7B does not fit in plenty")
    expect("disk" in models.shortage("7B", 32, "nvme", 100 << 30, plenty, 1e12, 60), "disk")
    expect("RAM" in models.shortage("7B", 32, "cpu", plenty, 64 << 30, 1e12, 60), "RAM")
    expect("would take" in models.shortage("7B", 32, "nvme", plenty, plenty, 1e9, 60), "time")
    expect(models.parameters("1B", 16) == 1_038_682_112, models.parameters("1B", 16))
    with tempfile.TemporaryDirectory() as folder:
        expect(models.disk_rate(folder, 1 << 23) > 0 and not os.listdir(folder), "disk_rate")
        models.disk_rate = lambda _: 1e12
        expect(1 <= models.layers_that_fit("1B", "nvme", folder, 60, gpu_check.Skip) <= 16, "layers that fit")


def every_test_that_needs_a_gpu_is_run():
    ran = []
    run_tests, gpu_check.google_test = gpu_check.google_test, lambda session, program, filters: ran.append((program, filters.split(":")))
    try:
        with tempfile.TemporaryDirectory() as folder:
            run(Programs(folder), folder, 0.5, gpu_check.all_checks)
    finally:
        gpu_check.google_test = run_tests
    filters = [f for program, names in ran if program == "engine_gpu_test" for f in names]
    text = "".join((source / f"tests/engine/{name}").read_text() for name in ("gpu_math_test.cc", "gpu_measure_test.cc", "gpu_training_test.cc"))
    tests = [".".join(found) for found in re.findall(r"^TEST_F\((\w+), (\w+)\)", text, re.M)]
    left = [t for t in tests if not any(fnmatch.fnmatch(t, f) for f in filters)]
    expect(len(tests) >= 11 and not left, f"of {len(tests)} tests these are not run: {left}")
    for f in filters:
        expect(any(fnmatch.fnmatch(t, f) for t in tests), f"there is no test {f}")
    expect({("cuda_device_test", "*"), ("comm_gpu_test", "*")} <= {(p, f) for p, names in ran for f in names}, ran)


def a_bundle_has_the_models_of_the_tests():
    text = "".join((source / f"tests/engine/{name}").read_text() for name in ("gpu_training_test.cc", "tiny_run.h"))
    known = {"tied", "untied", "tied_fp32", "gpt2", "gpt2_hub", "biased", "llama3", "mistral", "qwen2", "qwen3"}
    used = {name for name in re.findall(r'"(\w+)"', text) if name in known}
    expect(used == set(models.MODELS), f"the GPU's tests use {used}, a bundle has {models.MODELS}")


signal.alarm(100)
for test in (a_hang_and_a_crash_cost_their_own_part_only, a_machine_that_cannot_be_measured_is_a_failure, a_run_whose_time_is_over_counts_with_the_steps_it_has_done,
             what_there_is_no_room_for_is_skipped, without_time_everything_is_skipped_and_said, what_was_found_stays_when_it_is_ended,
             layers_are_as_many_as_fit, every_test_that_needs_a_gpu_is_run, a_bundle_has_the_models_of_the_tests):
    test()
print("\n".join(map(str, problems)) or "gpu-check: every part for itself")
sys.exit(1 if problems else 0)
