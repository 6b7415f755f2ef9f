"""Token files (docs/token_file.md): written by prepare.py, read by the trainer. Little endian throughout.

    header, 64 bytes: magic "SLUICETK", u32 version, u32 flags (bit 0: mask), u64 vocabulary, u64 tokens, u64 documents,
                      u64 tokenizer hash, u64 checksum of everything after the header, u64 checksum of the 56 bytes before
    u64 offsets[documents + 1]   in tokens; first 0, strictly increasing, last = tokens
    u16 or u32 ids[tokens]       u32 when the vocabulary passes 65,536
    u8  mask[tokens]             only with flag bit 0; 1: this token is trained on as a target, 0: it is only read
"""
import os
import struct
from pathlib import Path

import numpy as np
import xxhash

MAGIC, VERSION, HAS_MASK = b"SLUICETK", 1, 1
HEADER = struct.Struct("<8sIIQQQQQ")  # without the header's own checksum
HEADER_BYTES = 64
PIECE = 1 << 20  # elements moved at a time


def tokenizer_hash(folder):
    """Identifies a tokenizer: XXH3-64 of its tokenizer.json."""
    return xxhash.xxh3_64_intdigest((Path(folder) / "tokenizer.json").read_bytes())


def id_type(vocab):
    return np.dtype("<u2" if vocab <= 65536 else "<u4")


class Writer:
    """Collects documents in temporary files beside `path`; finish() joins them and renames. Memory: one document."""

    def __init__(self, path, vocab, tokenizer):
        self.path, self.vocab, self.tokenizer = Path(path), vocab, tokenizer
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.parts = {kind: self._side(kind) for kind in ("ids", "mask")}
        self.files = {kind: open(part, "wb+") for kind, part in self.parts.items()}
        self.offsets, self.masked = [0], False

    def _side(self, kind):
        return self.path.with_name(f"{self.path.name}.{kind}.tmp")

    def add(self, ids, mask=None):
        """One document; an empty one is dropped. mask: one truth value a token, None: all are trained on."""
        ids = np.asarray(ids, np.int64)
        if len(ids) == 0:
            return
        if ids.min() < 0 or ids.max() >= self.vocab:
            raise ValueError(f"token id {ids.max()} is outside the vocabulary of {self.vocab}")
        self.files["ids"].write(ids.astype(id_type(self.vocab)).tobytes())
        self.masked |= mask is not None
        mask = np.ones(len(ids), np.uint8) if mask is None else np.asarray(mask).astype(np.uint8)
        if len(mask) != len(ids):
            raise ValueError(f"a mask of {len(mask)} entries for {len(ids)} tokens")
        self.files["mask"].write(mask.tobytes())
        self.offsets.append(self.offsets[-1] + len(ids))

    def finish(self):
        whole = self._side("whole")
        checksum = xxhash.xxh3_64()
        with open(whole, "wb") as out:
            out.write(bytes(HEADER_BYTES))
            for piece in self._body():
                checksum.update(piece)
                out.write(piece)
            header = HEADER.pack(MAGIC, VERSION, HAS_MASK if self.masked else 0, self.vocab, self.offsets[-1],
                                 len(self.offsets) - 1, self.tokenizer, checksum.intdigest())
            out.seek(0)
            out.write(header + struct.pack("<Q", xxhash.xxh3_64_intdigest(header)))
            out.flush()
            os.fsync(out.fileno())
        os.replace(whole, self.path)
        directory = os.open(self.path.parent, os.O_RDONLY)
        os.fsync(directory)
        os.close(directory)
        self.discard()

    def _body(self):
        yield np.asarray(self.offsets, "<u8").tobytes()
        for kind in ("ids", "mask") if self.masked else ("ids",):
            self.files[kind].seek(0)
            while piece := self.files[kind].read(PIECE):
                yield piece

    def discard(self):
        """Removes the temporary files."""
        for file in self.files.values():
            file.close()
        for part in (*self.parts.values(), self._side("whole")):
            part.unlink(missing_ok=True)


def read(path):
    """(vocab, tokenizer hash, list of ids per document, list of masks per document or None), checksums verified."""
    data = Path(path).read_bytes()
    magic, version, flags, vocab, tokens, documents, tokenizer, checksum = HEADER.unpack_from(data)
    if (magic, version) != (MAGIC, VERSION):
        raise ValueError(f"{path} is not a token file of version {VERSION}")
    if xxhash.xxh3_64_intdigest(data[HEADER_BYTES:]) != checksum:
        raise ValueError(f"{path} is damaged: its checksum does not match")
    offsets = np.frombuffer(data, "<u8", documents + 1, HEADER_BYTES)
    at = HEADER_BYTES + 8 * (documents + 1)
    ids = np.frombuffer(data, id_type(vocab), tokens, at)
    spans = [slice(int(a), int(b)) for a, b in zip(offsets[:-1], offsets[1:])]
    mask = None
    if flags & HAS_MASK:
        mask = np.frombuffer(data, np.uint8, tokens, at + ids.nbytes)
    return vocab, tokenizer, [ids[s] for s in spans], None if mask is None else [mask[s] for s in spans]
