"""Models and configs of gpu-check: the tests' tiny model, and random ones in the shape of real ones."""
import json
import mmap
import os
import shutil
import time
from pathlib import Path

# Random weights, by `sluice init`: a GPU multiplies zeros faster, since they take less power.
SHAPES = {
    "1B": {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8},
    "7B": {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8},
}
VOCAB, STEPS, SEQUENCE = 32000, 4, 1024
MODELS = ("tied", "untied", "tied_fp32", "gpt2_hub")  # of the tests that gpu-check runs


def sizes_of(shape, layers):
    """For `sluice init --family llama`."""
    return json.dumps({"hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 4096, "vocab_size": VOCAB,
                       "tie_word_embeddings": True, **SHAPES[shape], "num_hidden_layers": layers})


def parameters(shape, layers):
    c = SHAPES[shape]
    hidden, inner = c["hidden_size"], c["intermediate_size"]
    kv = hidden // c["num_attention_heads"] * c["num_key_value_heads"]
    return VOCAB * hidden + layers * (2 * hidden * hidden + 2 * kv * hidden + 3 * inner * hidden + 2 * hidden) + hidden


def available_memory():
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def disk_rate(folder, size=1 << 30, most=5):
    """Bytes per second that are written to a new file, past the page cache where the file system lets one."""
    file, piece = Path(folder) / "rate", mmap.mmap(-1, 8 << 20)
    flags = os.O_CREAT | os.O_WRONLY
    try:
        descriptor = os.open(file, flags | os.O_DIRECT)
    except OSError:
        descriptor = os.open(file, flags)
    try:
        begin, written = time.monotonic(), 0
        while written < size and time.monotonic() - begin < most:
            written += os.write(descriptor, piece)
        os.fsync(descriptor)
        return written / (time.monotonic() - begin)
    finally:
        os.close(descriptor)
        os.unlink(file)


def shortage(shape, layers, tier, disk, ram, rate, seconds):
    """What is too little for so many layers, or None. 2 bytes a parameter of model; 12 of state in each slot: one slot for state in RAM, two on
    disk. In RAM it has a copy of that, or the pools. State in RAM is written when the run ends, state on disk is read and written every step."""
    count = parameters(shape, layers)
    need_disk, need_ram = (2 + 12 * (1 if tier == "cpu" else 2)) * count, 16 * count if tier == "cpu" else 8 << 30
    moved = (6 + (12 if tier == "cpu" else 28 * STEPS)) * count
    takes = moved / rate + 15e-9 * count / len(os.sched_getaffinity(0))  # to make random weights
    if disk < 1.1 * need_disk:
        return f"{1.1 * need_disk / 2**30:.0f} GiB of disk are needed, {disk / 2**30:.0f} GiB are free"
    if ram < 1.1 * need_ram:
        return f"{1.1 * need_ram / 2**30:.0f} GiB of RAM are needed, {ram / 2**30:.0f} GiB are free"
    if takes > 0.7 * seconds:
        return f"at the disk's {rate / 1e9:.2f} GB/s it would take {takes:.0f} s, and there are {seconds:.0f}"
    return None


def layers_that_fit(shape, tier, folder, seconds, error):
    """All of them, or so many as disk, RAM and the time let be."""
    disk, ram, rate = shutil.disk_usage(folder).free, available_memory(), disk_rate(folder)
    for layers in range(SHAPES[shape]["num_hidden_layers"], 0, -1):
        short = shortage(shape, layers, tier, disk, ram, rate, seconds)
        if short is None:
            return layers
    raise error(f"one layer: {short}")


def base_config(model, test_models, tier, steps, sequence, micro_batch):
    return {"model": {"path": str(model)}, "data": {"train": str(test_models / "train.tokens"), "sequence_length": sequence}, "steps": steps,
            "train_micro_batch_size_per_gpu": micro_batch, "gradient_accumulation_steps": 2, "machine": {"device": "cuda"},
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
            "zero_optimization": {"stage": 3, "offload_param": {"device": tier}, "offload_optimizer": {"device": tier}}}


def tiny_config(test_models):
    return base_config(test_models / "tied/model", test_models, "cpu", 10, 64, 2)


def shaped_config(model, test_models, tier):
    config = base_config(model, test_models, tier, STEPS, SEQUENCE, 4)
    config["storage"] = {"durable": "none" if tier == "cpu" else "step"}
    return config


def gpt2_config(model, test_models, stage):
    config = base_config(model, test_models, "none", STEPS, 512, 4)
    config["zero_optimization"]["stage"] = stage
    config["storage"] = {"durable": "none"}
    return config


def copy_test_models(source, target):
    """What training on them needs, and no more."""
    target.mkdir()
    for file in ("stamp", "train.tokens", "eval.tokens"):
        shutil.copy(source / file, target)
    for model in MODELS:
        shutil.copytree(source / model / "model", target / model / "model")
