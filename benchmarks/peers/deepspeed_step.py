#!/usr/bin/env python3
"""Training steps of DeepSpeed ZeRO-3 on its CPU accelerator, or on a GPU where there is one. Prints one JSON line.

    deepspeed_step.py MODEL_DIR TOKEN_FILE MICRO_BATCH ACCUMULATION STEPS --tier none|cpu|nvme [--checkpointing] [--block MIB] [--swap DIR]

nvme: parameters and optimizer on disk, pipelined reads and writes, aio 32 deep, buffers of the sizes it runs with, sub-groups of its default size
(of 5e7 parameters, and fewer buffers, from 5e8 on: each buffer of its optimizer is a whole sub-group of fp32).
A tensor smaller than a block of aio does not go to disk at all (min_aio_bytes in its runtime/swap_tensor), so the size of the block decides what is
offloaded: 1 MiB, its default and the least, sends the matrices of a small model there; with 8 MiB it is fastest and they stay in memory, gradients too.
With 1 MiB and --checkpointing DeepSpeed 0.19.8 computes wrong gradients.
"""
import argparse
import os
import shutil

for name, value in {"HF_HUB_OFFLINE": "1", "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_SIZE": "1", "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": "29511"}.items():
    os.environ.setdefault(name, value)
import torch  # noqa: E402

if not torch.cuda.is_available():
    os.environ["DS_ACCELERATOR"] = "cpu"
import common  # noqa: E402
import deepspeed  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402
from transformers.integrations import HfDeepSpeedConfig  # noqa: E402


def config_of(arguments, largest, count):
    zero = {"stage": 3, "overlap_comm": False}
    if arguments.tier != "none":
        zero["offload_optimizer"] = {"device": arguments.tier, "pin_memory": True}
        zero["offload_param"] = {"device": arguments.tier, "pin_memory": True}
    if arguments.tier == "nvme":
        zero["offload_optimizer"].update(nvme_path=arguments.swap, pipeline_read=True, pipeline_write=True, buffer_count=16)
        zero["offload_param"].update(nvme_path=arguments.swap, buffer_count=16, buffer_size=largest, max_in_cpu=0)
        zero.update(stage3_max_live_parameters=largest, stage3_max_reuse_distance=0, stage3_prefetch_bucket_size=int(5e6),
                    stage3_param_persistence_threshold=100000)
        if count > 5e8:
            zero["sub_group_size"] = int(5e7)
            zero["offload_optimizer"]["buffer_count"] = 12
            zero["offload_param"]["buffer_count"] = 5
    return {"train_micro_batch_size_per_gpu": arguments.micro_batch, "gradient_accumulation_steps": arguments.accumulation,
            "gradient_clipping": 1.0, "bf16": {"enabled": True}, "zero_optimization": zero, "steps_per_print": 10**9,
            "optimizer": {"type": "AdamW", "params": {**common.ADAM, "betas": list(common.ADAM["betas"])}},
            "aio": {"block_size": arguments.block << 20, "queue_depth": 32, "intra_op_parallelism": 1, "single_submit": False, "overlap_events": True}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("tokens")
    for name in ("micro_batch", "accumulation", "steps"):
        parser.add_argument(name, type=int)
    parser.add_argument("--tier", default="nvme", choices=("none", "cpu", "nvme"))
    parser.add_argument("--checkpointing", action="store_true")
    parser.add_argument("--block", type=int, default=1, help="MiB, of aio")
    parser.add_argument("--swap", default="work/peer_swap")
    arguments = parser.parse_args()
    os.makedirs(arguments.swap, exist_ok=True)
    from transformers import AutoConfig
    shape = AutoConfig.from_pretrained(arguments.model)
    with torch.device("meta"):
        count = AutoModelForCausalLM.from_config(shape).num_parameters()
    config = config_of(arguments, int(1.05 * shape.vocab_size * shape.hidden_size), count)
    deepspeed.init_distributed("nccl" if torch.cuda.is_available() else "gloo")
    keep = HfDeepSpeedConfig(config)  # from_pretrained then loads straight into ZeRO-3's shards; it lives as long as the model
    model = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=torch.bfloat16)
    model.train()
    model.config.use_cache = False
    if arguments.checkpointing:
        model.gradient_checkpointing_enable()
    engine = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]
    batches = common.Batches(arguments.tokens, arguments.micro_batch)

    def step():
        total = 0.0
        for _ in range(arguments.accumulation):
            batch = next(batches).to(engine.device)
            loss = engine(input_ids=batch, labels=batch).loss
            engine.backward(loss)
            engine.step()
            total += loss.item() / arguments.accumulation
        return total

    counted = common.Steps()
    for _ in range(arguments.steps):
        counted.run(step)
    counted.report()
    shutil.rmtree(arguments.swap, ignore_errors=True)
    del keep
    os._exit(0)  # its threads do not end by themselves


if __name__ == "__main__":
    main()
