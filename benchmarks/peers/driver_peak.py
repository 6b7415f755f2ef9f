"""What the driver says a GPU's memory grows to while something runs: contexts, libraries and fragmentation included, alike for everybody."""
import shutil
import subprocess
import threading


class DriverPeak:
    """with DriverPeak() as peak: ...; then peak.bytes, above what was used before; None where there is no GPU. One GPU, the first."""

    def __enter__(self):
        self.bytes, self._process = None, None
        if shutil.which("nvidia-smi"):
            self._process = subprocess.Popen(["nvidia-smi", "-i", "0", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-lms", "20"],
                                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            first = self._process.stdout.readline().strip()  # before anything has started
            if first.isdigit():
                self._before = int(first) << 20
                self.bytes = 0
                self._thread = threading.Thread(target=self._watch)
                self._thread.start()
        return self

    def _watch(self):
        for line in self._process.stdout:
            if line.strip().isdigit():
                self.bytes = max(self.bytes, (int(line) << 20) - self._before)

    def __exit__(self, *_):
        if self._process:
            self._process.kill()
            self._process.wait()
            if self.bytes is not None:
                self._thread.join()
            self._process.stdout.close()
