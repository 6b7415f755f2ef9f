"""Models and configs of gpu-check: the tests' tiny model, and empty ones in the shape of real ones."""
import json
import os
import shutil
import struct
from pathlib import Path

# Weights are a hole in a sparse file: zeros, of which a step takes as long as of any other numbers.
SHAPES = {
    "1B": {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8},
    "7B": {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8},
}
VOCAB, STEPS, SEQUENCE = 32000, 4, 1024
MODELS = ("tied", "untied", "tied_fp32")  # of the tests


def tensors_of(shape):
    """(name, dimensions) in the order of the file."""
    c = SHAPES[shape]
    hidden, inner = c["hidden_size"], c["intermediate_size"]
    kv = hidden // c["num_attention_heads"] * c["num_key_value_heads"]
    yield "model.embed_tokens.weight", [VOCAB, hidden]
    for i in range(c["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        for name, dimensions in (("input_layernorm", [hidden]), ("self_attn.q_proj", [hidden, hidden]), ("self_attn.k_proj", [kv, hidden]),
                                 ("self_attn.v_proj", [kv, hidden]), ("self_attn.o_proj", [hidden, hidden]),
                                 ("post_attention_layernorm", [hidden]), ("mlp.gate_proj", [inner, hidden]),
                                 ("mlp.up_proj", [inner, hidden]), ("mlp.down_proj", [hidden, inner])):
            yield layer + name + ".weight", dimensions
    yield "model.norm.weight", [hidden]


def parameters(shape):
    total = 0
    for _, dimensions in tensors_of(shape):
        count = 1
        for d in dimensions:
            count *= d
        total += count
    return total


def write_model(shape, folder):
    folder.mkdir(parents=True)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
              "max_position_embeddings": 4096, "vocab_size": VOCAB, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
              "attention_bias": False, "mlp_bias": False, "bos_token_id": 1, "eos_token_id": 2, **SHAPES[shape]}
    (folder / "config.json").write_text(json.dumps(config))
    header, at = {}, 0
    for name, dimensions in tensors_of(shape):
        count = 1
        for d in dimensions:
            count *= d
        header[name] = {"dtype": "BF16", "shape": dimensions, "data_offsets": [at, at + 2 * count]}
        at += 2 * count
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)
    return folder


def available_memory():
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def check_room(shape, tier, folder, error):
    """12 bytes of state a parameter in each slot: one slot for state in RAM, two on disk. RAM holds it beside, or the pools."""
    count = parameters(shape)
    disk, ram = 12 * count * (1 if tier == "cpu" else 2), 16 * count if tier == "cpu" else 8 << 30
    has_disk, has_ram = shutil.disk_usage(folder).free, available_memory()
    if has_disk < 1.1 * disk:
        raise error(f"{disk / 2**30:.0f} GiB of disk are needed, {has_disk / 2**30:.0f} GiB are free in {os.path.dirname(folder)}")
    if has_ram < 1.1 * ram:
        raise error(f"{ram / 2**30:.0f} GiB of RAM are needed, {has_ram / 2**30:.0f} GiB are free")


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
