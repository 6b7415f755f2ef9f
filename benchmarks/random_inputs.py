"""A model folder with random weights and a token file with random ids, for benchmarks to which the numbers do not matter."""
import subprocess
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
SLUICE = str(ROOT / "build/release/sluice")
sys.path.insert(0, str(ROOT / "tools"))
from token_file import Writer, tokenizer_hash  # noqa: E402


def run(words, check=True, **more):
    """sluice with these words; ends the benchmark with its message when that fails, unless not to check."""
    done = subprocess.run([SLUICE, *map(str, words)], cwd=ROOT, capture_output=True, text=True, **more)
    if check and done.returncode != 0:
        sys.exit(done.stderr)
    return done


def make_inputs(folder, family, sizes, vocabulary):
    """(model folder, token file) below the folder: 64 documents of 512 tokens."""
    model, tokens = folder / "model", folder / "train.tokens"
    run(["init", model, "--family", family, "--sizes", sizes, "--tokenizer", ROOT / "build/test_models/tokenizer"])
    writer = Writer(tokens, vocabulary, tokenizer_hash(model))
    generator = np.random.default_rng(1)
    for _ in range(64):
        writer.add(generator.integers(0, vocabulary, 512))
    writer.finish()
    return model, tokens
