"""Block files: what the build of one partition leaves behind, committed whole or not at all.

The stored blocks stand one after the other from offset 0.  Then come the statistics of the features
(``statistics.to_bytes``; nothing, where there are none), a footer in JSON (UTF-8), which holds the index of the blocks,
the counts of the partition and its bad rows, and a trailer of 20 bytes: the footer's length (uint64,
little-endian), the footer's CRC-32C (uint32, little-endian) and the magic ``RMBLOCK1``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from transforms.domains import DomainCheck, FeatureValues, from_plain, to_plain
from transforms.errors import CorruptError
from transforms.files import OutputFile, committed
from transforms.partition import Block
from transforms.tfrecord import crc32c

MAGIC = b"RMBLOCK1"
_TRAILER = struct.Struct("<QI8s")


@dataclass(frozen=True)
class Counts:
    """What happened to the rows of a partition: ``rows_read`` is the sum of the written, bad, dropped and removed."""

    rows_read: int = 0
    rows_written: int = 0
    bad_rows: int = 0
    keyless_rows: int = 0  # no value in any column of split_by
    raw_bytes: int = 0  # of the source
    dropped_rows: int = 0  # that ``drop_rows`` names
    removed_rows: int = 0  # by the user's own step; negative when it made more than it got


@dataclass(frozen=True)
class SliceRow:
    """A bad row by its slice in the partition and its ordinal in the slice, which hold wherever the content stands."""

    slice: int
    row: int
    column: str | None
    value: str | None
    reason: str


@dataclass(frozen=True)
class BlockFile:
    """The index of a block file: its blocks in the order in which they were written, and the counts.

    ``strays``: the values outside of their domains, of the ``in_domains`` values that a feature with a domain has.
    """

    path: str
    blocks: tuple[Block, ...]
    counts: Counts
    bad_rows: tuple[SliceRow, ...] = ()
    strays: FeatureValues = field(default_factory=dict)
    in_domains: Mapping[str, int] = field(default_factory=dict)
    statistics: tuple[int, int, int] = (0, 0, 0)  # where they stand: offset, bytes, CRC-32C


@dataclass
class BlockFileWriter:
    """Appends stored blocks to an open file and remembers where they are."""

    output: OutputFile
    blocks: list[Block] = field(default_factory=list)

    def add(self, split: str, stored: bytes | memoryview, *, raw_bytes: int, num_records: int, checksum: int) -> None:
        self.blocks.append(
            Block(
                split=split,
                offset=self.output.num_bytes,
                num_bytes=len(stored),
                raw_bytes=raw_bytes,
                num_records=num_records,
                crc32c=crc32c(stored),
                checksum=checksum,
            )
        )
        self.output.write(stored)

    def finish(
        self,
        counts: Counts,
        bad_rows: Sequence[SliceRow] = (),
        domains: DomainCheck | None = None,
        statistics: bytes = b"",
    ) -> None:
        place = (self.output.num_bytes, len(statistics), crc32c(statistics))
        self.output.write(statistics)
        content = {
            "statistics": place,
            "counts": dataclasses.asdict(counts),
            "blocks": [list(dataclasses.astuple(block)) for block in self.blocks],
            "bad_rows": [list(dataclasses.astuple(row)) for row in bad_rows],
            "strays": to_plain(domains.strays) if domains else {},
            "in_domains": domains.values if domains else {},
        }
        footer = json.dumps(content, separators=(",", ":")).encode()
        self.output.write(footer)
        self.output.write(_TRAILER.pack(len(footer), crc32c(footer), MAGIC))


@contextlib.contextmanager
def write_block_file(path: str) -> Iterator[BlockFileWriter]:
    """A writer whose file is committed under ``path`` when the block ends without an error.

    Not to the disk: index and blocks have checksums, so that a file that a crash of the machine damaged is noticed.
    """
    with committed(path, durable=False) as output:
        yield BlockFileWriter(output)


def read_block_file(path: str) -> BlockFile:
    """The index of a block file.  Raises CorruptError, which names the path, when it is cut or changed."""
    with open(path, "rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        try:
            footer, start = _read_footer(stream, size)
            blocks = tuple(Block(*fields) for fields in footer["blocks"])
            counts = Counts(**footer["counts"])
            bad_rows = tuple(SliceRow(*fields) for fields in footer["bad_rows"])
            strays, in_domains = from_plain(footer["strays"]), dict(footer["in_domains"])
            offset, size, checksum = footer["statistics"]
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptError(f"{path}: not a whole block file ({error}); it is built again") from error
    if sum(b.num_bytes for b in blocks) != offset or offset + size != start:
        raise CorruptError(f"{path}: its index and its size do not fit; it is built again")
    return BlockFile(path, blocks, counts, bad_rows, strays, in_domains, (offset, size, checksum))


def _read_footer(stream: BinaryIO, size: int) -> tuple[Any, int]:
    if size < _TRAILER.size:
        raise ValueError("too short")
    stream.seek(size - _TRAILER.size)
    length, checksum, magic = _TRAILER.unpack(stream.read(_TRAILER.size))
    start = size - _TRAILER.size - length
    if magic != MAGIC or start < 0:
        raise ValueError("no trailer")
    stream.seek(start)
    footer = stream.read(length)
    if crc32c(footer) != checksum:
        raise ValueError("footer damaged")
    return json.loads(footer), start


def read_statistics(file: BlockFile) -> bytes:
    """What ``finish`` was given.  Raises CorruptError, which names the path, when it is damaged."""
    offset, size, checksum = file.statistics
    with open(file.path, "rb") as stream:
        stream.seek(offset)
        content = stream.read(size)
    if len(content) != size or crc32c(content) != checksum:
        raise CorruptError(f"{file.path}: its statistics are damaged; the file is built again")
    return content


def read_block(stream: BinaryIO, block: Block, *, path: str) -> bytes:
    """The stored bytes of a block, held against their checksum.  Raises CorruptError, which names path and offset."""
    stream.seek(block.offset)
    stored = stream.read(block.num_bytes)
    if len(stored) != block.num_bytes or crc32c(stored) != block.crc32c:
        raise CorruptError(f"{path}: the block at offset {block.offset} is damaged; the file is built again")
    return stored


def find_damage(path: str) -> str | None:
    """What is wrong with the block file, all of whose blocks are read; None if nothing is, or if there is no file."""
    try:
        with open(path, "rb") as stream:
            file = read_block_file(path)
            for block in file.blocks:
                read_block(stream, block, path=path)
            read_statistics(file)
    except FileNotFoundError:
        return None
    except CorruptError as error:
        return str(error)
    return None
