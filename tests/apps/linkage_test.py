#!/usr/bin/env python3
"""What the loader will do with programs built with CUDA.   linkage_test.py PROGRAM...
LibTorch's CUDA kernels are only there when libtorch_cuda is loaded, which no symbol asks for; the runtime must be the shared one that
LibTorch has; and the toolkit's stub of the driver, found before the real one, would hide every GPU."""
import re
import subprocess
import sys

problems = []
for program in sys.argv[1:]:
    dynamic = subprocess.run(["readelf", "-d", program], text=True, capture_output=True, check=True).stdout
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic)
    paths = [p for line in re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", dynamic) for p in line.split(":")]
    for library in ("libtorch_cuda.so", "libc10_cuda.so", "libcudart.so.13"):
        if library not in needed:
            problems.append(f"{program}: {library} is not among the needed libraries: {', '.join(needed)}")
    problems += [f"{program}: the stub directory is on the run path: {p}" for p in paths if "stubs" in p]
    if any(name.startswith("libcuda.so") for name in needed):
        problems.append(f"{program}: libcuda.so is needed: without a driver the program would not start")
    print(f"{program}: {len(needed)} needed libraries, run path {':'.join(paths)}")
print("\n".join(problems))
sys.exit(1 if problems else 0)
