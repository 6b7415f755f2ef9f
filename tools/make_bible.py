#!/usr/bin/env python3
"""The King James Bible as training text: one JSON line {"text": ...} a chapter.

    make_bible.py [OUT_DIR]        writes OUT_DIR/bible.train.jsonl and OUT_DIR/bible.eval.jsonl (default: work)

The last books (Hebrews to Revelation) are the evaluation set. Needs Debian's package bible-kjv.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

EVAL_BOOKS = 9  # Hebrews, James, 1-2 Peter, 1-3 John, Jude, Revelation
VERSE = re.compile(r"^(\S+?)(\d+):(\d+)\s+(.*)$")


def chapters():
    """[(book, chapter, text)] in the order of the book; one verse a line."""
    program = shutil.which("bible")
    if program is None:
        sys.exit("the program `bible` is missing; install it with: apt-get install bible-kjv")
    lines = subprocess.run([program, "-f", "gen1:1-rev22:21"], capture_output=True, text=True, check=True).stdout
    found = []
    for line in lines.splitlines():
        match = VERSE.match(line)
        if match is None:
            sys.exit(f"unexpected line from `bible -f`: {line!r}")
        book, chapter, _, verse = match.groups()
        if not found or found[-1][:2] != (book, int(chapter)):
            found.append((book, int(chapter), []))
        found[-1][2].append(verse)
    return [(book, chapter, "\n".join(verses)) for book, chapter, verses in found]


def split(all_chapters):
    """(training chapters, evaluation chapters)."""
    books = list(dict.fromkeys(book for book, _, _ in all_chapters))
    held_out = set(books[-EVAL_BOOKS:])
    return ([c for c in all_chapters if c[0] not in held_out], [c for c in all_chapters if c[0] in held_out])


def write(path, documents):
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "w", encoding="utf-8") as out:
        for book, chapter, text in documents:
            out.write(json.dumps({"book": book, "chapter": chapter, "text": text}) + "\n")
    os.replace(temporary, path)
    print(f"{path}: {len(documents)} chapters, {path.stat().st_size / 1e6:.1f} MB")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?", default=Path("work"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    train, evaluation = split(chapters())
    write(args.out / "bible.train.jsonl", train)
    write(args.out / "bible.eval.jsonl", evaluation)


if __name__ == "__main__":
    main()
