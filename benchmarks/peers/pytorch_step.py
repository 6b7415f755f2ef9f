#!/usr/bin/env python3
"""Training steps of transformers + fused AdamW in memory, on the CPU or on a GPU where there is one: bf16 compute, fp32 master. Prints one JSON line.

    pytorch_step.py MODEL_DIR TOKEN_FILE MICRO_BATCH ACCUMULATION STEPS [--checkpointing]

Run it with a tuned allocator (e2e.py does): page faults cost plain malloc a tenth.
"""
import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
import common  # noqa: E402
import torch  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402


def main():
    model_dir, tokens, micro_batch, accumulation, steps = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.bfloat16)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model.to(device).train()
    model.config.use_cache = False
    if "--checkpointing" in sys.argv:
        model.gradient_checkpointing_enable()
    weights = list(model.parameters())
    masters = [w.detach().float().clone() for w in weights]
    optimizer = torch.optim.AdamW(masters, **common.ADAM, fused=True)
    batches = common.Batches(tokens, micro_batch)

    def step():
        total = 0.0
        for _ in range(accumulation):
            batch = next(batches).to(device)
            loss = model(input_ids=batch, labels=batch).loss
            (loss / accumulation).backward()
            total += loss.item() / accumulation
            # Sums over micro-batches in fp32, as everyone else here does.
            for master, weight in zip(masters, weights):
                if master.grad is None:
                    master.grad = weight.grad.float()
                else:
                    master.grad.add_(weight.grad)
                weight.grad = None
        torch.nn.utils.clip_grad_norm_(masters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            torch._foreach_copy_(weights, masters)
        return total

    counted = common.Steps()
    for _ in range(steps):
        counted.run(step)
    counted.report()


if __name__ == "__main__":
    main()
