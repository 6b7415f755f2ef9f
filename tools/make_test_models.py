#!/usr/bin/env python3
"""Tiny random models with transformers' own losses and gradients, for the parity tests.

    make_test_models.py [OUT_DIR] [--force]      default: build/test_models; does nothing when OUT_DIR is up to date

Everything comes from fixed seeds, one thread, and the King James Bible (Debian's bible-kjv) cut by a small BPE trained here.
Each model is trained for a few steps first: gradients of untrained weights are too ill-conditioned to compare.

OUT_DIR/
  stamp                        what made the folder; written last
  tokenizer/                   tokenizer.json, tokenizer_config.json; 2048 tokens, id 0 is "<|end|>"
  train.tokens, eval.tokens    token files of some chapters (no mask)
  MODEL/model/                 the Hugging Face folder
  MODEL/batches.safetensors    for batch k: tokens.k, targets.k, positions.k  I64 [2, 64]; starts.k.r  I64 [pieces of row r].
                               targets are already shifted: targets[i] is tokens[i + 1] of the same piece or -100.
                               Batches 0-3: one piece a row. Batches 4, 5: several pieces; 5 has masked targets too.
  MODEL/adamw.tokens           the rows of reference.json's adamw.batches, a document each
  MODEL/gradients_f64.safetensors   F32 (rounded from float64): "k/NAME" for each batch, "accumulated/NAME" for batches 2-5
                               as one step. Gradients of the mean loss over the trained tokens (of all its batches).
  MODEL/gradients_bf16.safetensors  the same from transformers in bf16: "k/NAME" BF16; "accumulated/NAME" F32, the fp32 sum
                               of the four bf16 gradients, each of its loss sum / trained tokens of all four.
  MODEL/reference.json
    pad_token                  id or null; its embedding row gets no gradient from the embedding (only from a tied head; GPT-2: as any row)
    Everything is computed without dropout, whatever the model's config says (gpt2_hub keeps the family's 0.1).
    batches[k]                 {trained, loss_f64, loss_bf16}; mean over trained tokens; f64: all of the model in float64,
                               but for RMSNorm's inside and the rotary tables, which transformers keeps in fp32
    fp16                       {scale, batches, losses, gradient_errors}, of some batches, since fp16 is slow here; the loss is scaled for
                               backward, the errors are |fp16 - f64| / |f64| over all gradients
    accumulated                {batches: [2, 3, 4, 5], trained, loss_f64, loss_bf16}
    adamw                      {lr, beta1, beta2, eps, weight_decay, clip, batches, losses_f64, norms_f64, losses_bf16, norms_bf16, losses_fp16,
                               norms_fp16}; five steps, one batch each, from the stored weights; loss and gradient norm before each update;
                               decay on matrices only. bf16, fp16: fp32 master, weights rounded from it before every step.
"""
import argparse
import copy
import hashlib
import json
import os
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: E402
from torch.nn.functional import cross_entropy  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from transformers import (AutoModelForCausalLM, GPT2LMHeadModel, LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM,  # noqa: E402
                          Qwen3ForCausalLM)

import make_bible  # noqa: E402
import token_file  # noqa: E402

VOCAB, BATCH, SEQUENCE, END = 2048, 2, 64, "<|end|>"
WHOLE, PACKED = 4, 2
ACCUMULATED = [2, 3, 4, 5]
FP16_BATCHES = [0, WHOLE]
FP16_SCALE = 64.0  # of the loss, so that small gradients do not vanish; a token whose embedding is near zero overflows at more
ADAMW = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1, "clip": 1.0, "batches": [0, 1, 2, 3, 0]}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}


@dataclass
class Recipe:
    name: str
    config: dict
    dtype: torch.dtype = torch.bfloat16
    shards: int = 1
    v4: bool = False      # config.json as transformers 4 wrote it
    padded: bool = False  # pad_token_id is the most frequent token of the batches
    hub: bool = False     # GPT-2 as its hub file is: names without "transformer.", mask buffers
    family: type = field(default=LlamaForCausalLM)


BIG = {"hidden_size": 128, "intermediate_size": 384, "num_attention_heads": 4, "num_key_value_heads": 2}  # > 3 leaves a block
SMALL = {"hidden_size": 64, "intermediate_size": 192, "num_attention_heads": 4, "num_key_value_heads": 2}
GPT2 = {"n_embd": 128, "n_head": 4, "n_layer": 2, "n_positions": 128}
LLAMA = {"num_hidden_layers": 2, "max_position_embeddings": 256, "rms_norm_eps": 1e-5}
RECIPES = [
    Recipe("tied", {**BIG, "tie_word_embeddings": True}),
    Recipe("untied", {**BIG, "tie_word_embeddings": False}, shards=3, v4=True, padded=True),
    Recipe("tied_fp32", {**SMALL, "tie_word_embeddings": True, "head_dim": 32, "num_key_value_heads": 1, "num_hidden_layers": 3},
           torch.float32, padded=True),
    Recipe("llama3", {**SMALL, "num_key_value_heads": 4, "rope_parameters": LLAMA3}, torch.float32, shards=2),
    Recipe("biased", {**SMALL, "attention_bias": True, "mlp_bias": True,
                      "rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}}, torch.float32, v4=True),
    Recipe("mistral", {**SMALL, "sliding_window": None}, family=MistralForCausalLM),
    Recipe("gpt2", {**GPT2, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0}, family=GPT2LMHeadModel),
    Recipe("gpt2_hub", {**GPT2, "n_inner": 320}, torch.float32, hub=True, padded=True, family=GPT2LMHeadModel),
    Recipe("qwen2", {**SMALL, "use_sliding_window": False, "sliding_window": 64}, family=Qwen2ForCausalLM),
    Recipe("qwen3", {**SMALL, "head_dim": 32, "tie_word_embeddings": True}, torch.float32, family=Qwen3ForCausalLM),
]


def make_tokenizer(folder, text):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(text, trainers.BpeTrainer(vocab_size=VOCAB, special_tokens=[END], show_progress=False,
                                                            initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "model_max_length": 512,
                "chat_template": "{% for m in messages %}{{ m['role'] }}: {% if m['role'] == 'assistant' %}{% generation %}"
                                 "{{ m['content'] }}" + END + "{% endgeneration %}{% else %}{{ m['content'] }}{% endif %}\n"
                                 "{% endfor %}"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    return tokenizer


def write_tokens(path, tokenizer, folder, texts):
    writer = token_file.Writer(path, VOCAB, token_file.tokenizer_hash(folder))
    for text in texts:
        writer.add(tokenizer.encode(text).ids + [0])
    writer.finish()


def write_rows(path, folder, batches):
    """The rows of the batches as a token file: in file order, rows of SEQUENCE tokens are these batches again."""
    writer = token_file.Writer(path, VOCAB, token_file.tokenizer_hash(folder))
    for tokens, *_ in batches:
        for row in tokens:
            writer.add(row)
    writer.finish()


def make_batches(documents, seed):
    """[(tokens, targets, positions, starts per row)] as the docstring says."""
    rng = np.random.default_rng(seed)
    batches = []
    for k in range(WHOLE + PACKED):
        tokens, targets, positions = (np.zeros((BATCH, SEQUENCE), np.int64) for _ in range(3))
        starts = []
        targets[:] = -100
        for row in range(BATCH):
            cuts = [0] if k < WHOLE else [0] + sorted(rng.choice(np.arange(1, SEQUENCE), 3, replace=False).tolist())
            for begin, end in zip(cuts, cuts[1:] + [SEQUENCE]):
                document = documents[rng.integers(len(documents))]
                first = rng.integers(len(document) - SEQUENCE)
                tokens[row, begin:end] = document[first:first + end - begin]
                targets[row, begin:end - 1] = tokens[row, begin + 1:end]
                positions[row, begin:end] = np.arange(end - begin)
            starts.append(cuts)
        if k == WHOLE + PACKED - 1:
            targets[rng.random(targets.shape) < 0.3] = -100
        batches.append((torch.from_numpy(tokens), torch.from_numpy(targets), torch.from_numpy(positions), starts))
    return batches


def loss_sum(model, batch):
    """Sum of the token losses; every piece runs alone, so positions and attention restart. float64 stays, bf16 goes to fp32."""
    tokens, targets, _, starts = batch
    total = 0
    for row in range(len(tokens)):
        for begin, end in zip(starts[row], starts[row][1:] + [tokens.shape[1]]):
            logits = model(input_ids=tokens[row:row + 1, begin:end], use_cache=False).logits[0]
            logits = logits if logits.dtype == torch.float64 else logits.float()
            total = total + cross_entropy(logits, targets[row, begin:end], ignore_index=-100, reduction="sum")
    return total


def trained(batch):
    return int((batch[1] != -100).sum())


def gradients(model, batches):
    """(mean loss, {name: gradient}) of the batches as one step; each batch's gradients in the model's type, summed in at least fp32."""
    scale = FP16_SCALE if model.dtype == torch.float16 else 1.0
    count = sum(trained(b) for b in batches)
    loss, sums = 0.0, {}
    for batch in batches:
        model.zero_grad(set_to_none=True)
        part = loss_sum(model, batch) / count
        (part * scale).backward()
        loss += part.item()
        for name, p in model.named_parameters():
            wide = p.grad.double() if p.dtype == torch.float64 else p.grad.float()
            wide = wide / scale
            sums[name] = sums[name] + wide if name in sums else wide
    return loss, sums


def whole_error(grads, exact):
    error = sum((g.double() - exact[n]).pow(2).sum() for n, g in grads.items())
    return torch.sqrt(error / sum(g.pow(2).sum() for g in exact.values())).item()


def adamw_run(model, batches, master_type):
    """Five steps; the model's weights are rounded from a master of master_type."""
    model = copy.deepcopy(model)
    named = [(n, p) for n, p in model.named_parameters()]
    masters = [p.detach().to(master_type, copy=True) for _, p in named]
    groups = [{"params": [m for m in masters if m.dim() > 1], "weight_decay": ADAMW["weight_decay"]},
              {"params": [m for m in masters if m.dim() == 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=ADAMW["lr"], betas=(ADAMW["beta1"], ADAMW["beta2"]), eps=ADAMW["eps"])
    losses, norms = [], []
    for k in ADAMW["batches"]:
        loss, grads = gradients(model, [batches[k]])
        norm = torch.sqrt(sum(g.double().pow(2).sum() for g in grads.values())).item()
        scale = min(1.0, ADAMW["clip"] / (norm + 1e-6))
        for (name, _), master in zip(named, masters):
            master.grad = (grads[name] * scale).to(master_type)
        optimizer.step()
        with torch.no_grad():
            for (_, p), master in zip(named, masters):
                p.copy_(master)
        losses.append(loss)
        norms.append(norm)
    return losses, norms


def train_a_little(model, documents, seed, steps=40):
    rng = np.random.default_rng(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    for _ in range(steps):
        rows = []
        for _ in range(8):
            document = documents[rng.integers(len(documents))]
            first = rng.integers(len(document) - SEQUENCE)
            rows.append(document[first:first + SEQUENCE].astype(np.int64))
        rows = torch.from_numpy(np.stack(rows))
        optimizer.zero_grad()
        loss = cross_entropy(model(input_ids=rows, use_cache=False).logits[:, :-1].flatten(0, 1), rows[:, 1:].flatten())
        loss.backward()
        optimizer.step()


def to_v4(path):
    """Rewrites config.json with the keys of transformers 4."""
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    config["torch_dtype"] = config.pop("dtype")
    config["transformers_version"] = "4.46.0"
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def to_hub(folder):
    """Rewrites a saved GPT-2 as the file of 2019 is: no prefix, causal masks beside the weights, the context's length twice."""
    config = json.loads((folder / "config.json").read_text())
    config["torch_dtype"], config["n_ctx"] = config.pop("dtype"), config["n_positions"]
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    tensors = {n.removeprefix("transformer."): t for n, t in load_file(folder / "model.safetensors").items()}
    mask = torch.ones(config["n_positions"], config["n_positions"]).tril()[None, None]
    tensors |= {f"h.{i}.attn.bias": mask.clone() for i in range(config["n_layer"])}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def save_model(folder, recipe, model, tokenizer_folder):
    size = sum(p.numel() for p in model.parameters()) * recipe.dtype.itemsize
    limit = size if recipe.shards == 1 else -(-size // recipe.shards) + size // 10
    model.to(recipe.dtype).save_pretrained(folder, max_shard_size=limit + 4096)
    if (folder / "model.safetensors").exists() != (recipe.shards == 1):
        sys.exit(f"{recipe.name}: transformers did not write {recipe.shards} file(s)")
    if recipe.v4:
        to_v4(folder / "config.json")
    if recipe.hub:
        to_hub(folder)
    for file in tokenizer_folder.iterdir():
        shutil.copy(file, folder)


def load(folder, dtype):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    if hasattr(model, "model") and model.model.rotary_emb.inv_freq.dtype != torch.float32:  # rounded tables would make a useless reference
        sys.exit("transformers loaded the rotary table in a reduced type")
    return model.eval()  # as in training, but for dropout


def make_model(out, recipe, seed, documents, tokenizer_folder):
    batches = make_batches(documents, seed)
    pad = int(torch.cat([b[0].flatten() for b in batches]).bincount().argmax()) if recipe.padded else None
    torch.manual_seed(seed)
    common = {"vocab_size": VOCAB, "initializer_range": 0.05, "bos_token_id": None, "eos_token_id": 0, "pad_token_id": pad}
    if recipe.family is not GPT2LMHeadModel:
        common |= LLAMA
    model = recipe.family(recipe.family.config_class(**{**common, **copy.deepcopy(recipe.config)}))
    for name, p in model.named_parameters():  # transformers starts biases at zero
        if name.endswith("bias"):
            torch.nn.init.normal_(p, std=0.1)
    train_a_little(model, documents, seed)
    folder = out / recipe.name
    save_model(folder / "model", recipe, model, tokenizer_folder)

    exact, rounded = load(folder / "model", torch.float64), load(folder / "model", torch.bfloat16)
    stored_name = (lambda n: n.removeprefix("transformer.")) if recipe.hub else (lambda n: n)
    tensors = {}
    for k, (tokens, targets, positions, starts) in enumerate(batches):
        tensors |= {f"tokens.{k}": tokens, f"targets.{k}": targets, f"positions.{k}": positions}
        tensors |= {f"starts.{k}.{r}": torch.tensor(s) for r, s in enumerate(starts)}
    save_file(tensors, folder / "batches.safetensors")
    write_rows(folder / "adamw.tokens", tokenizer_folder, [batches[k] for k in ADAMW["batches"]])

    reference = {"model": recipe.name, "pad_token": pad, "batches": [{"trained": trained(b)} for b in batches]}
    reference["accumulated"] = {"batches": ACCUMULATED, "trained": sum(trained(batches[k]) for k in ACCUMULATED)}
    exact_grads = {}
    for kind, model in (("f64", exact), ("bf16", rounded)):
        stored = {}
        for k, batch in enumerate(batches):
            reference["batches"][k][f"loss_{kind}"], grads = gradients(model, [batch])
            exact_grads.setdefault(k, grads)
            stored |= {f"{k}/{stored_name(n)}": g.to(torch.float32 if kind == "f64" else torch.bfloat16) for n, g in grads.items()}
        reference["accumulated"][f"loss_{kind}"], grads = gradients(model, [batches[k] for k in ACCUMULATED])
        stored |= {f"accumulated/{stored_name(n)}": g.float() for n, g in grads.items()}
        save_file(stored, folder / f"gradients_{kind}.safetensors")
    half = load(folder / "model", torch.float16)
    results = {k: gradients(half, [batches[k]]) for k in FP16_BATCHES}
    reference["fp16"] = {"scale": FP16_SCALE, "batches": FP16_BATCHES, "losses": [loss for loss, _ in results.values()],
                         "gradient_errors": [whole_error(grads, exact_grads[k]) for k, (_, grads) in results.items()]}
    losses_f64, norms_f64 = adamw_run(exact, batches, torch.float64)
    losses_bf16, norms_bf16 = adamw_run(rounded, batches, torch.float32)
    losses_fp16, norms_fp16 = adamw_run(half, batches, torch.float32)
    reference["adamw"] = {**ADAMW, "losses_f64": losses_f64, "norms_f64": norms_f64, "losses_bf16": losses_bf16,
                          "norms_bf16": norms_bf16, "losses_fp16": losses_fp16, "norms_fp16": norms_fp16}
    (folder / "reference.json").write_text(json.dumps(reference, indent=1) + "\n")
    print(f"{recipe.name}: {sum(p.numel() for p in exact.parameters())} parameters, loss {reference['batches'][0]['loss_f64']:.3f}")


def stamp():
    sources = b"".join(Path(m.__file__).read_bytes() for m in (make_bible, token_file)) + Path(__file__).read_bytes()
    return f"{hashlib.sha256(sources).hexdigest()} torch {torch.__version__} transformers {transformers.__version__}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?", default=Path("build/test_models"))
    parser.add_argument("--force", action="store_true", help="make everything anew")
    args = parser.parse_args()
    mark = args.out / "stamp"
    if not args.force and mark.exists() and mark.read_text() == stamp():
        return
    torch.set_num_threads(1)
    temporary = args.out.with_name(args.out.name + ".tmp")
    shutil.rmtree(temporary, ignore_errors=True)

    train, evaluation = make_bible.split(make_bible.chapters())
    train, evaluation = [t for _, _, t in train[:120]], [t for _, _, t in evaluation[:6]]
    tokenizer = make_tokenizer(temporary / "tokenizer", train)
    write_tokens(temporary / "train.tokens", tokenizer, temporary / "tokenizer", train)
    write_tokens(temporary / "eval.tokens", tokenizer, temporary / "tokenizer", evaluation)
    documents = [d for d in token_file.read(temporary / "train.tokens")[2] if len(d) > 2 * SEQUENCE]
    for seed, recipe in enumerate(RECIPES, 1):
        make_model(temporary, recipe, seed, documents, temporary / "tokenizer")
    (temporary / "stamp").write_text(stamp())
    shutil.rmtree(args.out, ignore_errors=True)
    temporary.rename(args.out)


if __name__ == "__main__":
    main()
