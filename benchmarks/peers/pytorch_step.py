#!/usr/bin/env python3
"""Training steps of transformers + fused AdamW on the CPU: bf16 compute, fp32 master. Prints one JSON line.

    pytorch_step.py MODEL_DIR TOKEN_FILE --sequence N --micro-batch N --steps N

Run it with a tuned allocator (train_vs_pytorch.py does): page faults cost plain malloc a tenth.
"""
import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
import numpy as np  # noqa: E402
import torch  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import token_file  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("tokens")
    parser.add_argument("--sequence", type=int, default=512)
    parser.add_argument("--micro-batch", type=int, default=4)
    parser.add_argument("--steps", type=int, default=4)
    arguments = parser.parse_args()
    ids = np.concatenate(token_file.read(arguments.tokens)[2]).astype(np.int64)
    model = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=torch.bfloat16)
    model.train()
    model.config.use_cache = False
    weights = list(model.parameters())
    masters = [w.detach().float().clone() for w in weights]
    optimizer = torch.optim.AdamW(masters, lr=1e-5, weight_decay=0.01, fused=True)
    per_step = arguments.sequence * arguments.micro_batch
    seconds, losses = [], []
    for step in range(arguments.steps):
        batch = torch.from_numpy(ids[step * per_step:(step + 1) * per_step].reshape(arguments.micro_batch, arguments.sequence))
        begin = time.perf_counter()
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        for master, weight in zip(masters, weights):
            master.grad = weight.grad.float()
            weight.grad = None
        torch.nn.utils.clip_grad_norm_(masters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            torch._foreach_copy_(weights, masters)
        seconds.append(time.perf_counter() - begin)
        losses.append(loss.item())
    median = statistics.median(seconds[1:])
    print(json.dumps({"step_seconds": median, "tokens_per_s": per_step / median, "losses": losses}))


if __name__ == "__main__":
    main()
