"""Damaged files of each format: every one gives its rows and bad rows, or one clear error; nothing else.

    python tests/fuzz.py --format avro --inputs 100000
    python tests/fuzz.py                                # all formats, 1,000 inputs each

Bytes of a small valid file are flipped, cut out, doubled, put in from other files, or replaced by extreme numbers.  The
inputs of a batch are read in a process of their own with a limit of memory and of time, so that a crash, a hang or a
bomb of a library is seen, and the input that made it is kept.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.test_images import image  # noqa: E402
from tests.test_sources import KINDS as TYPED  # noqa: E402
from tests.test_sources import make_contents
from tests.test_webdataset import archive, samples  # noqa: E402
from transforms.errors import RecordmillError  # noqa: E402
from transforms.partition import BadRow  # noqa: E402
from transforms.sources import open_source  # noqa: E402

KINDS = [*TYPED, "webdataset", "images"]
BATCH = 2500
SECONDS = 10.0  # for one input
MEMORY = 6 << 30  # of address space: that of the libraries themselves, and some
EXTREMES = [b"\0" * 4, b"\xff" * 4, b"\xff\xff\xff\x7f", b"\0\0\0\x80", b"\xff" * 8, b"\xff" * 7 + b"\x7f", b'"', b"\n"]


def damaged(content: bytes, others: list[bytes], rng: random.Random) -> bytes:
    """The content with one to four faults."""
    found = bytearray(content)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        at = rng.randrange(len(found) + 1)
        kind = rng.randrange(6)
        size = rng.choice([1, 2, 4, 16, 300])
        if kind == 0 and at < len(found):
            found[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del found[at : at + size]
        elif kind == 2:
            found[at:at] = found[at : at + size]
        elif kind == 3:
            other = rng.choice(others)
            begin = rng.randrange(len(other))
            found[at : at + size] = other[begin : begin + size]
        elif kind == 4:
            extreme = rng.choice(EXTREMES)
            found[at : at + len(extreme)] = extreme
        else:
            del found[at:]
    return bytes(found)


def look(kind: str, path: str) -> str:
    """How a file ends: ``rows``, or the name of an error of ours.  Any other exception is a fault."""
    source = open_source(kind.split()[0], {})
    bad: list[BadRow] = []
    try:
        ordinals: list[int] = []
        for partition in source.partitions([path], target_bytes=2000):
            for batch in source.read(partition, on_bad_row=bad.append):
                batch.data.validate(full=True)
                assert len(batch.rows) == batch.data.num_rows
                ordinals += batch.rows.tolist()
        places = sorted([*ordinals, *(row.row for row in bad)])
        assert len(places) == len(set(places)), "a row is there twice"
        gaps = places != list(range(len(places)))
        assert not gaps or kind in ("jsonl", "libsvm"), f"rows are lost: {len(places)} up to {places[-1]}"
    except RecordmillError as error:
        assert path in str(error), f"the error does not name the file: {error}"
        return type(error).__name__
    return "bad rows" if bad else "rows"


def run_batch(kind: str, first: int, last: int, folder: str) -> None:
    """The body of a process: reads inputs, and writes the number of each before it begins."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    contents = make_contents(Path(folder)) | {"webdataset": archive(*samples(20)), "images": image(1)}
    small = {
        name: content[:60_000] if name in ("csv", "jsonl", "text", "libsvm") else content
        for name, content in contents.items()
    }
    endings: Counter[str] = Counter()
    path = os.path.join(folder, "input")
    for number in range(first, last):
        rng = random.Random(f"{kind} {number}")
        Path(path).write_bytes(damaged(small[kind], list(small.values()), rng))
        print("input", number, flush=True)
        begin = time.monotonic()
        endings[look(kind, path)] += 1
        if time.monotonic() - begin > SECONDS:
            raise TimeoutError(f"input {number} took {time.monotonic() - begin:.0f} s")
    for ending, count in endings.items():
        print("ending", count, ending)


def fuzz(kind: str, inputs: int) -> tuple[Counter[str], list[str]]:
    """How the inputs ended, and the faults in words."""
    endings: Counter[str] = Counter()
    faults = []
    first = 0
    while first < inputs:
        last = min(first + BATCH, inputs)
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, __file__, "--format", kind, "--batch", str(first), str(last), folder]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS * 60)
                code, output, errors = done.returncode, done.stdout, done.stderr
            except subprocess.TimeoutExpired as error:
                code, output, errors = -1, (error.stdout or b"").decode(), "hangs"
        lines = [line.split(" ", 2) for line in output.splitlines()]
        for line in lines:
            if line[0] == "ending":
                endings[line[2]] += int(line[1])
        if code:
            number = max((int(line[1]) for line in lines if line[0] == "input"), default=first)
            faults.append(f"{kind}, input {number}: exit {code}: {errors.strip().splitlines()[-1:]}")
            endings["fault"] += 1
            first = number + 1
        else:
            first = last
    return endings, faults


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--format", action="append", choices=KINDS)
    parser.add_argument("--inputs", type=int, default=1000)
    parser.add_argument("--batch", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.batch:
        first, last, folder = arguments.batch
        run_batch(arguments.format[0], int(first), int(last), folder)
        return
    all_faults = []
    for kind in arguments.format or KINDS:
        endings, faults = fuzz(kind, arguments.inputs)
        print(
            f"{kind:>15}: {sum(endings.values())} inputs: " + ", ".join(f"{n} {e}" for e, n in endings.most_common()),
            flush=True,
        )
        print("\n".join(faults), end="\n" if faults else "", flush=True)
        all_faults += faults
    sys.exit(1 if all_faults else 0)


if __name__ == "__main__":
    main()
