#!/usr/bin/env python3
"""Training steps of PyTorch FSDP2 with CPU offload: fp32 parameters, bf16 compute. Prints one JSON line.

    fsdp_step.py MODEL_DIR TOKEN_FILE MICRO_BATCH ACCUMULATION STEPS [--checkpointing]
"""
import os
import sys

for name, value in {"HF_HUB_OFFLINE": "1", "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29512"}.items():
    os.environ.setdefault(name, value)
import common  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402


def main():
    model_dir, tokens, micro_batch, accumulation, steps = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
    on_gpu = torch.cuda.is_available()
    dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo")
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    model.train()
    model.config.use_cache = False
    if "--checkpointing" in sys.argv:
        model.gradient_checkpointing_enable()
    settings = {"mesh": init_device_mesh("cuda" if on_gpu else "cpu", (1,)), "offload_policy": CPUOffloadPolicy(pin_memory=on_gpu),
                "mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)}
    for layer in model.model.layers:
        fully_shard(layer, **settings)
    fully_shard(model, **settings)
    optimizer = torch.optim.AdamW(model.parameters(), **common.ADAM)
    batches = common.Batches(tokens, micro_batch)

    def step():
        total = 0.0
        for k in range(accumulation):
            batch = next(batches).to("cuda" if on_gpu else "cpu")
            model.set_is_last_backward(k == accumulation - 1)
            loss = model(input_ids=batch, labels=batch).loss
            (loss / accumulation).backward()
            total += loss.item() / accumulation
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return total

    counted = common.Steps()
    for _ in range(steps):
        counted.run(step)
    counted.report()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
