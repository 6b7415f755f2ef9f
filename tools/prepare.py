#!/usr/bin/env python3
"""Tokenises text into a token file (docs/token_file.md).

Inputs by their names:
  *.jsonl, *.json   JSON lines; a document is {"text": "..."} or a chat {"messages": [{"role": ..., "content": ...}, ...]},
                    which goes through the tokenizer's chat template and is trained on in the assistant's turns only
  everything else   plain UTF-8 text, cut into documents by --split
The end token is appended to every text document unless --no-eos.
"""
import argparse
import json
import os
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
from tokenizers import Tokenizer  # noqa: E402
from tqdm import tqdm  # noqa: E402

import token_file  # noqa: E402

USAGE, DATA, MODEL, DISK = 2, 3, 4, 7  # exit codes of the program
BATCH = 256  # documents tokenised at a time


class Failure(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class TextTokenizer:
    def __init__(self, folder, add_eos):
        path = folder / "tokenizer.json"
        if not path.exists():
            raise Failure(MODEL, f"{folder} has no tokenizer.json; give a model folder with a fast tokenizer")
        if path.read_bytes()[:40].startswith(b"version https://git-lfs"):
            raise Failure(MODEL, f"{path} is a git-lfs pointer, not the file itself; run `git lfs pull` in {folder}")
        try:
            self.tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # tokenizers raises plain Exception
            raise Failure(MODEL, f"{path} is not a tokenizer: {error}") from None
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self.vocab = max(self.tokenizer.get_vocab(with_added_tokens=True).values()) + 1
        self.eos = self._find_eos(folder) if add_eos else None

    def _find_eos(self, folder):
        settings, config = (json.loads(p.read_text()) if p.exists() else {}
                            for p in (folder / "tokenizer_config.json", folder / "config.json"))
        token = settings.get("eos_token")
        token = token.get("content") if isinstance(token, dict) else token
        if token is not None:
            found = self.tokenizer.token_to_id(token)
            if found is None:
                raise Failure(MODEL, f"{folder}/tokenizer_config.json names the end token {token!r}, which the tokenizer does not have")
            return found
        ids = config.get("eos_token_id")
        return ids[0] if isinstance(ids, list) else ids

    def encode(self, texts):
        for encoding in self.tokenizer.encode_batch(texts):
            ids = encoding.ids
            yield ids if self.eos is None or ids[-1:] == [self.eos] else ids + [self.eos]


class ChatTokenizer:
    """Renders chats with the tokenizer's own template. Loaded only for chat data: it needs transformers."""

    def __init__(self, folder):
        from transformers import AutoTokenizer
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        if not self.tokenizer.chat_template:
            raise Failure(MODEL, f"{folder} has no chat template; chat data needs one")
        self.marked = "generation %}" in self.tokenizer.chat_template or "generation -%}" in self.tokenizer.chat_template

    def render(self, messages, prompt=False):
        return self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompt)

    def encode(self, messages):
        """(ids, mask)"""
        if self.marked:
            out = self.tokenizer.apply_chat_template(messages, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
            return out["input_ids"], out["assistant_masks"]
        text, spans = self.render(messages), []
        for i, message in enumerate(messages):
            if message["role"] == "assistant":
                before, after = self.render(messages[:i], prompt=True), self.render(messages[:i + 1])
                if not (after.startswith(before) and text.startswith(after)):
                    raise Failure(DATA, "the chat template rewrites earlier turns, so the assistant's part cannot be told apart; "
                                        "mark it in the template with {% generation %}")
                spans.append((len(before), len(after)))
        encoding = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        mask = [any(begin < b and a < end for begin, end in spans) for a, b in encoding["offset_mapping"]]
        return encoding["input_ids"], mask


def read_text(path):
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise Failure(DATA, f"{path} is not UTF-8 text: {error}") from None


def text_documents(path, split):
    text = read_text(path)
    if split == "line":
        return (line for line in text.splitlines() if line.strip())
    if split == "blank-line":
        return (part for part in text.replace("\r\n", "\n").split("\n\n") if part.strip())
    return iter([text] if text.strip() else [])


def json_documents(path):
    """Strings (texts) and lists (chats)."""
    with open(path, "rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            where = f"{path}:{number}"
            try:
                entry = json.loads(line)
            except ValueError as error:
                raise Failure(DATA, f"{where} is not JSON: {error}") from None
            if isinstance(entry, dict) and isinstance(entry.get("text"), str):
                if entry["text"].strip():
                    yield entry["text"]
            elif isinstance(entry, dict) and isinstance(entry.get("messages"), list):
                if not all(isinstance(m, dict) and isinstance(m.get("role"), str) and "content" in m for m in entry["messages"]):
                    raise Failure(DATA, f"{where}: every message needs a role and a content")
                yield entry["messages"]
            else:
                raise Failure(DATA, f'{where} has neither "text" (a string) nor "messages" (a list)')


def documents(path, split):
    return json_documents(path) if path.suffix in (".jsonl", ".json") else text_documents(path, split)


def prepare(args):
    texts = TextTokenizer(args.tokenizer, not args.no_eos)
    chats = None
    for path in args.input:
        if not path.is_file():
            raise Failure(DATA, f"{path} does not exist or is not a file")
    writer = token_file.Writer(args.out, texts.vocab, token_file.tokenizer_hash(args.tokenizer))
    try:
        total = sum(path.stat().st_size for path in args.input)
        # Without a terminal the bar is off.
        with tqdm(total=total, unit="B", unit_scale=True, desc="tokenising", file=sys.stderr, disable=args.quiet or None) as bar:
            waiting = []

            def flush():
                for ids in texts.encode(waiting):
                    writer.add(ids)
                bar.update(sum(len(t.encode()) for t in waiting))
                waiting.clear()

            for path in args.input:
                for document in documents(path, args.split):
                    if isinstance(document, list):
                        flush()  # keeps the order of the input
                        chats = chats or ChatTokenizer(args.tokenizer)
                        writer.add(*chats.encode(document))
                        bar.update(len(json.dumps(document)))
                        continue
                    waiting.append(document)
                    if len(waiting) == BATCH:
                        flush()
                flush()
        if len(writer.offsets) == 1:
            raise Failure(DATA, "the input holds no text")
        writer.finish()
        return {"documents": len(writer.offsets) - 1, "tokens": writer.offsets[-1], "vocab": texts.vocab, "masked": writer.masked,
                "bytes": args.out.stat().st_size, "out": str(args.out)}
    finally:
        writer.discard()


def main():
    parser = argparse.ArgumentParser(prog="sluice prepare", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input", type=Path, nargs="+", metavar="INPUT")
    parser.add_argument("--tokenizer", type=Path, required=True, metavar="DIR", help="folder with tokenizer.json: the model's")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="token file to write")
    parser.add_argument("--split", choices=["file", "blank-line", "line"], default="file",
                        help="what a document is in plain text: a whole file (default), a paragraph, or a line")
    parser.add_argument("--no-eos", action="store_true", help="append no end token to text documents")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    args = parser.parse_args()
    try:
        result = prepare(args)
    except Failure as error:
        print(f"error: {error}", file=sys.stderr)
        return error.code
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return DISK
    except KeyboardInterrupt:
        return 130
    if args.json:
        print(json.dumps(result))
    else:
        print(f"{result['out']}: {result['documents']} documents, {result['tokens']} tokens, vocabulary {result['vocab']}"
              f"{', masked' if result['masked'] else ''}, {result['bytes'] / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
