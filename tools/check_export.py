#!/usr/bin/env python3
"""The loss of a Hugging Face folder in transformers, on the rows that `sluice eval` uses.

    check_export.py FOLDER TOKEN_FILE --sequence N [--dtype bfloat16|float32|float64] [--rows N]

Prints {"loss", "perplexity", "trained", "rows"} as JSON. Documents lie one after the other in file order, cut every N tokens;
each piece of a document is one forward pass of its own, and its last token and masked tokens are not predicted.
"""
import argparse
import json
import math
import os
import sys
from collections import defaultdict
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch.nn.functional import cross_entropy  # noqa: E402
from transformers import AutoModelForCausalLM, logging  # noqa: E402

import token_file  # noqa: E402

BATCH_TOKENS = 2048


def pieces(path, sequence, rows):
    """[(ids, targets)] and the number of rows."""
    _, _, documents, masks = token_file.read(path)
    found, at = [], 0  # at: place in the stream of all documents
    for d, ids in enumerate(documents):
        ids = ids.astype(np.int64)
        mask = np.ones(len(ids), bool) if masks is None else masks[d].astype(bool)
        first = 0
        while first < len(ids):
            if rows and at >= rows * sequence:
                return found, rows
            last = min(len(ids), first + sequence - at % sequence)
            targets = np.full(last - first, -100, np.int64)
            targets[:-1] = np.where(mask[first + 1:last], ids[first + 1:last], -100)
            found.append((ids[first:last], targets))
            at += last - first
            first = last
    return found, -(-at // sequence)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("tokens", type=Path)
    parser.add_argument("--sequence", type=int, required=True, help="tokens in a row, as in the run")
    parser.add_argument("--dtype", choices=["bfloat16", "float32", "float64"], default="bfloat16")
    parser.add_argument("--rows", type=int, default=0, help="only the first rows (default: all)")
    args = parser.parse_args()
    if token_file.read(args.tokens)[1] != token_file.tokenizer_hash(args.folder):
        print(f"error: {args.tokens} was made with another tokenizer than that of {args.folder}", file=sys.stderr)
        return 3
    logging.disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(args.folder, dtype=getattr(torch, args.dtype)).eval()

    found, rows = pieces(args.tokens, args.sequence, args.rows)
    by_length = defaultdict(list)
    for piece in found:
        by_length[len(piece[0])].append(piece)
    loss, trained = 0.0, 0
    with torch.no_grad():
        for length, group in sorted(by_length.items()):
            step = max(1, BATCH_TOKENS // length)
            for i in range(0, len(group), step):
                ids, targets = (torch.from_numpy(np.stack(x)) for x in zip(*group[i:i + step]))
                if not (targets >= 0).any():
                    continue
                logits = model(input_ids=ids, use_cache=False).logits
                logits = logits if logits.dtype == torch.float64 else logits.float()
                loss += cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100, reduction="sum").item()
                trained += int((targets >= 0).sum())
    mean = loss / max(trained, 1)
    print(json.dumps({"loss": mean, "perplexity": math.exp(mean), "trained": trained, "rows": rows}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
