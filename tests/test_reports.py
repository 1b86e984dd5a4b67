"""Faults that users of other tools reported, from the config to decoded rows: the right outcome of each.

Each test names its report.  Those that need no input of their own are in ``test_build`` (shards, stale files, changed
sources) and ``test_build_transform`` (scaling).
"""

from __future__ import annotations

import gzip
import json
import struct
from collections import defaultdict
from collections.abc import Mapping
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_build import leftovers, rows, run, source

from pipeline import plan
from pipeline.inspect import inspect
from pipeline.layout import Layout
from pipeline.verify import verify
from transforms.errors import BadRowsError, ConfigError, SchemaError
from transforms.schema import Schema

JSONL: dict[str, Any] = {"source": {"format": "jsonl", "files": "data/*"}}
PARQUET: dict[str, Any] = {"source": {"format": "parquet", "files": "data/*"}}
REQUIRED = "presence { min_fraction: 1 } shape {}"
ONE_OR_NONE = "value_count { min: 1 max: 1 }"
SPLITS = {"train": 0.8, "eval": 0.2}


def feature(name: str, kind: str, more: str = ONE_OR_NONE) -> str:
    return f'feature {{ name: "{name}" type: {kind} {more} }}\n'


def defaults(**values: str) -> str:
    dense = "".join(
        f'tensor_representation {{ key: "{name}" value {{ dense_tensor {{ column_name: "{name}" shape {{}} '
        f"default_value {{ {value} }} }} }} }}\n"
        for name, value in values.items()
    )
    return f'tensor_representation_group {{ key: "" value {{ {dense} }} }}\n'


def declare(folder: Path, *features: str) -> dict[str, str]:
    """Writes the schema by hand; what the config has to say then."""
    (folder / "schema.pbtxt").write_text("".join(features))
    return {"schema": "schema.pbtxt"}


def by_id(folder: Path, split: str = "all") -> dict[Any, dict[str, Any]]:
    found = {row["id"]: row for row in rows(folder, split)}
    return {key: {name: v for name, v in found[key].items() if name != "id"} for key in sorted(found)}


def kinds(folder: Path) -> dict[str, str]:
    return {f.name: f.kind for f in inspect(str(folder / "out")).features}


def schema_of(path: str) -> Schema:
    return Schema.from_text(Path(path, "schema.pbtxt").read_text(), path="schema.pbtxt")


def parquet(folder: Path, **columns: pa.Array) -> None:
    (folder / "data").mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), folder / "data" / "a.parquet")


def lines(*objects: Mapping[str, Any]) -> str:
    return "".join(json.dumps(o) + "\n" for o in objects)


# ---- sources ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("partition_bytes", [16, 64, 1 << 20])
def test_cells_that_hold_line_ends_stay_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partition_bytes: int
) -> None:
    """tensorflow/data-validation#72, #13: rows break apart when a quoted cell holds a line break."""
    monkeypatch.setattr(plan, "PARTITION_BYTES", partition_bytes)
    texts = ["plain", "two\nlines", "win\r\nbreak", "comma, inside", 'say "hi"', "7,decoy,1", "id,text,stars", "\n", ""]
    cells = "".join('{},"{}",{}\n'.format(i, text.replace('"', '""'), i % 5) for i, text in enumerate(texts))
    source(tmp_path, a__csv="id,text,stars\n" + cells, b__csv='\ufeff"text","id","stars"\r"a\rb",90,1\rtail "q",91,2')
    run(tmp_path, "runner.workers=2")
    assert [row["text"].decode() for row in by_id(tmp_path).values()] == [*texts, "a\rb", 'tail "q"']
    assert kinds(tmp_path) == {"id": "int", "text": "bytes", "stars": "int"}


def test_columns_are_matched_by_name(tmp_path: Path) -> None:
    """databricks/spark-csv#338, tensorflow/tfx#2197: same columns in another order, values in the wrong columns."""
    source(
        tmp_path,
        p1__csv="id,age,income,label\n1,31,4100,0\n2,45,5200,1\n",
        p2__csv="label,income,id,age\n1,3900,3,28\n0,6100,4,52\n",
        p3__csv="id,age,income,label,source\n5,39,4700,1,web\n",
        p4__csv="id,age,label\n6,22,0\n",
    )
    run(tmp_path)
    expected = [(31, 4100, 0), (45, 5200, 1), (28, 3900, 1), (52, 6100, 0), (39, 4700, 1), (22, None, 0)]
    found = by_id(tmp_path).values()
    assert [(row["age"], row.get("income"), row["label"]) for row in found] == expected
    assert [row.get("source") for row in found] == [None, None, None, None, b"web", None]
    run(tmp_path, **declare(tmp_path, feature("label", "FLOAT", REQUIRED), feature("id", "INT", REQUIRED)))
    assert by_id(tmp_path)[3] == {"label": 1.0}


def test_a_pattern_without_files_is_refused_before_any_work(tmp_path: Path) -> None:
    """apache/beam#29195, #20918: a pattern that matches nothing gives an empty output and success."""
    source(tmp_path, **{"2023-01__csv": "id\n1\n"})
    with pytest.raises(ConfigError, match=r"data/2024-\*\.csv.*matches no file.*2023-01\.csv"):
        run(tmp_path, source={"format": "csv", "files": ["data/2023*", "data/2024-*.csv"]})
    assert not (tmp_path / "out").exists()


def test_files_and_partitions_without_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """apache/beam#38742: a CSV reader fails at random when a split holds no row, and on header-only files."""
    monkeypatch.setattr(plan, "PARTITION_BYTES", 8)
    empty: dict[str, str | bytes] = {"a__csv": "id,t\n", "b__csv": "", "c__csv": "\n\n", "d__csv": gzip.compress(b"")}
    source(tmp_path, **empty, e__csv='id,t\n1,"' + "x\n" * 50 + '"\n2,y\n')
    result = run(tmp_path)
    assert list(by_id(tmp_path)) == [1, 2] and result.rows_read == 2
    assert sorted(w for w in result.warnings if "empty" in w) == [  # files are looked at side by side
        f"{tmp_path}/data/{name}.csv: the file is empty; it gives no rows" for name in "bcd"
    ]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_source_of_empty_files_is_an_empty_dataset_if_that_is_allowed(tmp_path: Path, kind: str) -> None:
    """huggingface/datasets#7443: nothing to read, or nothing that can be read, must not look like success."""
    source(tmp_path, **{f"a__{kind}": ""})
    reading: dict[str, Any] = {"source": {"format": kind, "files": "data/*"}}
    with pytest.raises(SchemaError, match="the source has no columns"):
        run(tmp_path, **reading)
    assert run(tmp_path, allow_empty=True, **reading).splits["all"].rows == 0
    assert not verify(str(tmp_path / "out")).faults
    if kind == "jsonl":
        source(tmp_path, a__jsonl='{"id": 7, "w": [null, 1.0]}\n<html>\n')
        with pytest.raises(BadRowsError, match=r"(?s)row 1, column 'w': a null inside the list.*row 2: is not JSON"):
            run(tmp_path, allow_empty=True, **reading)
        source(tmp_path, a__jsonl='{"id": 7, "w": [null, 1.0]}\n{"id": 8}\n')
        with pytest.raises(BadRowsError, match=r"row 1, column 'w': a null inside the list"):
            run(tmp_path, **reading)


# ---- schema ----------------------------------------------------------------------------------------------------------


def test_the_type_comes_from_the_last_row_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """apache/arrow#46223: the type is fixed from the first block; a later value stops the job or is lost."""
    content = "id,reading,code,remark\n" + "".join(f"{i},{i % 90},{i % 1000},\n" for i in range(40_000))
    source(tmp_path, meter__csv=content + "40000,7.5,A12,replaced\n")
    for partition_bytes in (1 << 30, 50_000):
        monkeypatch.setattr(plan, "PARTITION_BYTES", partition_bytes)
        run(tmp_path)
        assert kinds(tmp_path) == {"id": "int", "reading": "float", "code": "bytes", "remark": "bytes"}
        found = by_id(tmp_path)
        assert found[41] == {"reading": 41.0, "code": b"41"}
        assert found[40_000] == {"reading": 7.5, "code": b"A12", "remark": b"replaced"}
        assert len(found) == 40_001 and sum("remark" in row for row in found.values()) == 1


def test_text_that_parsing_would_change_stays_text(tmp_path: Path) -> None:
    """apache/arrow#46853, pandas-dev/pandas#57666: leading zeros are lost in postal codes and shop ids."""
    source(tmp_path, a__csv='id,zip,shop,version,sku\n1,90210,"007",1.10,1e5\n2,00501,"010",1.9,2e3\n')
    run(tmp_path)
    found = by_id(tmp_path)
    assert [(row["zip"], row["shop"], row["sku"]) for row in found.values()] == [
        (b"90210", b"007", b"1e5"),
        (b"00501", b"010", b"2e3"),
    ]
    run(tmp_path, **declare(tmp_path, feature("id", "INT"), *(feature(n, "BYTES") for n in ("version", "zip"))))
    assert by_id(tmp_path) == {1: {"version": b"1.10", "zip": b"90210"}, 2: {"version": b"1.9", "zip": b"00501"}}


def test_values_of_a_wrong_kind_are_named(tmp_path: Path) -> None:
    """RUC-NLPIR/FlashRAG#132, huggingface/datasets#7322: numbers and text in one field, and the whole file refused."""
    source(tmp_path, a__jsonl=lines({"id": 1, "t": "1984"}, {"id": 2, "t": 1984}, {"id": 3}))
    with pytest.raises(SchemaError, match=r"a\.jsonl: column 't' holds text in row 1 \('1984'\) and a number in row 2"):
        run(tmp_path, **JSONL)
    run(tmp_path, **JSONL, **declare(tmp_path, feature("id", "INT", REQUIRED), feature("t", "BYTES")))
    assert by_id(tmp_path) == {1: {"t": b"1984"}, 2: {"t": b"1984"}, 3: {}}
    with pytest.raises(BadRowsError, match=r"a\.jsonl, row 3, column 't': missing value in a required column"):
        run(tmp_path, **JSONL, **declare(tmp_path, feature("t", "INT", REQUIRED)))
    source(tmp_path, a__jsonl=lines({"id": 1, "t": "1984"}, {"id": 2, "t": "x"}))
    with pytest.raises(BadRowsError, match=r"a\.jsonl, row 2, column 't': is not an integer .*: 'x'"):
        run(tmp_path, **JSONL, **declare(tmp_path, feature("t", "INT")))


def test_a_missing_value_of_a_required_column(tmp_path: Path) -> None:
    """tensorflow/tfx#1337, tensorflow/transform#97: a missing value in a fixed-length feature; a default may be 0."""
    source(tmp_path, a__csv="id,age\n1,31\n2,\n3,28\n4,7\n5,9\n")
    fixed = [feature("id", "INT", REQUIRED), feature("age", "INT", REQUIRED)]
    with pytest.raises(BadRowsError, match="1 bad row, .*\n.*a.csv, row 2, column 'age': missing .* default value"):
        run(tmp_path, **declare(tmp_path, *fixed))
    with pytest.raises(SchemaError, match=r"a\.csv: has no column 'height', which the schema requires"):
        run(tmp_path, **declare(tmp_path, *fixed, feature("height", "INT", REQUIRED)))
    for value in (0, -7):
        fill = defaults(age=f"int_value: {value}", height="float_value: 1.5")
        run(tmp_path, **declare(tmp_path, fixed[0], feature("age", "INT", ""), feature("height", "FLOAT", ""), fill))
        assert [row["age"] for row in by_id(tmp_path).values()] == [31, value, 28, 7, 9]
        assert {row["height"] for row in by_id(tmp_path).values()} == {1.5}
    run(tmp_path, **declare(tmp_path, fixed[0], feature("age", "FLOAT"), feature("height", "FLOAT")))
    assert by_id(tmp_path)[2] == {} and by_id(tmp_path)[1] == {"age": 31.0}


# ---- encoding --------------------------------------------------------------------------------------------------------


LISTS: list[dict[str, Any]] = [
    {"id": 1, "tags": [], "w": []},
    {"id": 2, "tags": None, "w": None},
    {"id": 3},
    {"id": 4, "tags": ["a", "b"], "w": [0.5, 1.5]},
    {"id": 5, "tags": [""], "w": [0.0]},
    {"id": 6, "tags": ["c"], "w": [2]},
]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_empty_null_and_absent_lists(tmp_path: Path, kind: str) -> None:
    """ray-project/ray#31831, vahidk/tfrecord#101: lists without values; the first rows give no type."""
    if kind == "jsonl":
        source(tmp_path, a__jsonl=lines(*LISTS))
    else:
        tags = pa.array([row.get("tags") for row in LISTS], pa.list_(pa.string()))
        weights = pa.array([row.get("w") for row in LISTS], pa.list_(pa.float64()))
        parquet(tmp_path, id=pa.array(range(1, 7)), tags=tags, w=weights)
    run(tmp_path, source={"format": kind, "files": "data/*"})
    assert kinds(tmp_path) == {"id": "int", "tags": "bytes", "w": "float"}
    found = {row["id"][0] if isinstance(row["id"], list) else row["id"]: row for row in _decoded(tmp_path)}
    assert {key: (row.get("tags", []), row.get("w", [])) for key, row in sorted(found.items())} == {
        1: ([], []),
        2: ([], []),
        3: ([], []),
        4: ([b"a", b"b"], [0.5, 1.5]),
        5: ([b""], [0.0]),
        6: ([b"c"], [2.0]),
    }


def _decoded(folder: Path) -> list[dict[str, Any]]:
    """Lists as lists, of whatever length."""
    return list(inspect(str(folder / "out"), rows=10**6).rows["all"])


def test_nested_values(tmp_path: Path) -> None:
    """linkedin/spark-tfrecord#70, ray-project/ray#32257: lists of lists, and structs."""
    source(
        tmp_path,
        a__jsonl=lines(
            {
                "id": 1,
                "u": {"age": 3, "tags": ["a"]},
                "l": [[1, 2], [], [3]],
                "o": [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}],
            },
            {"id": 2, "u": None, "l": [], "o": []},
        ),
    )
    run(tmp_path, **JSONL)
    assert by_id(tmp_path) == {
        1: {
            **{"u.age": 3, "u.tags": b"a", "l": [1, 2, 3], "l.row_lengths": [2, 0, 1]},
            **{"o.a": [1, 2], "o.b": [b"x", b"y"]},
        },
        2: {"l": [], "l.row_lengths": [], "o.a": [], "o.b": []},
    }
    age = feature("age", "FLOAT", ONE_OR_NONE + r""" annotation { tag: "source: [\"u\", \"age\"]" }""")
    run(tmp_path, **JSONL, **declare(tmp_path, feature("id", "INT", REQUIRED), age))
    assert by_id(tmp_path) == {1: {"age": 3.0}, 2: {}}
    source(tmp_path, a__jsonl=lines({"id": 1, "deep": [[[1]]]}))
    with pytest.raises(SchemaError, match="column 'deep' is of type .*flatten it"):
        run(tmp_path, **JSONL)


def test_doubles_are_rounded(tmp_path: Path) -> None:
    """tensorflow/tensorflow#42088: 1e39 becomes infinite without an error, 16777217 changes."""
    doubles = [0.620390625, 1e-46, 16777217.0, float("inf")]
    parquet(tmp_path, id=pa.array(range(4)), x=pa.array(doubles, pa.float64()))
    run(tmp_path, **PARQUET)
    assert [row["x"] for row in by_id(tmp_path).values()] == [
        struct.unpack("f", struct.pack("f", 0.620390625))[0],
        0.0,
        16777216.0,
        float("inf"),
    ]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_doubles_are_kept_where_the_schema_says_so(tmp_path: Path, kind: str) -> None:
    """tensorflow/tensorflow#12876: float_list holds 32 bits; a column may keep 64 as bytes."""
    doubles = [0.620390625, 1e-46, 16777217.0, 1e39]
    if kind == "csv":
        source(tmp_path, a__csv="id,x\n" + "".join(f"{i},{x!r}\n" for i, x in enumerate(doubles)))
    elif kind == "jsonl":
        source(tmp_path, a__jsonl=lines(*({"id": i, "x": x} for i, x in enumerate(doubles))))
    else:
        parquet(tmp_path, id=pa.array(range(4)), x=pa.array(doubles, pa.float64()))
    reading: dict[str, Any] = {"source": {"format": kind, "files": "data/*"}}
    with pytest.raises(BadRowsError, match=r"row 4, column 'x': does not fit float32; .*float64.*1e\+?39"):
        run(tmp_path, **reading, **declare(tmp_path, feature("x", "FLOAT")))
    keep = feature("x", "BYTES", ONE_OR_NONE + ' annotation { tag: "float64" }')
    run(tmp_path, **reading, **declare(tmp_path, feature("id", "INT"), keep))
    assert [struct.unpack("<d", row["x"])[0] for row in by_id(tmp_path).values()] == doubles


BERLIN = ["2024-03-31T01:59:59+01:00", "2024-03-31T03:00:00+02:00", None, "1969-12-31T23:59:59.500Z", "2024-03-31"]
MILLISECONDS = [1711846799000, 1711846800000, None, -500, 1711843200000]


def test_times_become_epochs_of_a_stated_unit(tmp_path: Path) -> None:
    """tensorflow/tfx#4169, huggingface/datasets#5495: date and timestamp columns are refused."""
    times = [v and datetime.fromisoformat(v.replace("Z", "+00:00")) for v in BERLIN]
    times = [v and (v if v.tzinfo else v.replace(tzinfo=timezone.utc)) for v in times]
    parquet(
        tmp_path,
        id=pa.array(range(5)),
        utc=pa.array(times, pa.timestamp("ms", "UTC")),
        berlin=pa.array(times, pa.timestamp("us", "Europe/Berlin")),
        day=pa.array([None, date(1969, 12, 31), date(2024, 3, 31), None, None]),
        price=pa.array([Decimal("1.10"), None, Decimal("-0.05"), None, None], pa.decimal128(9, 2)),
        unused=pa.array([[("k", 1)]] * 5, pa.map_(pa.string(), pa.int64())),
    )
    fields = [feature("id", "INT"), *(feature(n, "INT", ONE_OR_NONE + _unit(u)) for n, u in UNITS.items())]
    result = run(tmp_path, **PARQUET, **declare(tmp_path, *fields, feature("price", "BYTES")))
    found = by_id(tmp_path).values()
    assert [row.get("utc") for row in found] == MILLISECONDS
    assert [row.get("berlin") for row in found] == [v if v is None else v // 1000 for v in MILLISECONDS]
    assert [row.get("day") for row in found] == [None, -1, 19813, None, None]
    assert [row.get("price") for row in found] == [b"1.10", None, b"-0.05", None, None]
    assert {f.name: f.time_unit for f in schema_of(result.path).features if f.time_unit} == {
        "utc": "ms",
        "berlin": "s",
        "day": "days",
    }
    with pytest.raises(SchemaError, match="column 'unused' is of type map"):
        run(tmp_path, **PARQUET)


UNITS = {"utc": "MILLISECONDS", "berlin": "SECONDS", "day": "DAYS"}


def _unit(unit: str) -> str:
    return f" time_domain {{ integer_format: UNIX_{unit} }}"


def test_times_in_text_are_parsed_where_the_schema_says_so(tmp_path: Path) -> None:
    """tensorflow/tfx#2400: times in CSV; text without a declared unit stays text."""
    source(tmp_path, a__csv="id,t\n" + "".join(f"{i},{text or ''}\n" for i, text in enumerate(BERLIN)))
    run(tmp_path)
    assert [row.get("t") for row in by_id(tmp_path).values()] == [text and text.encode() for text in BERLIN]
    for unit, factor in (("SECONDS", 1000), ("MILLISECONDS", 1), ("DAYS", 86_400_000)):
        declared = declare(tmp_path, feature("id", "INT"), feature("t", "INT", ONE_OR_NONE + _unit(unit)))
        run(tmp_path, **declared)
        assert [row.get("t") for row in by_id(tmp_path).values()] == [v and v // factor for v in MILLISECONDS]
    source(tmp_path, a__csv="id,t\n1,31.03.2024\n")
    with pytest.raises(BadRowsError, match=r"row 1, column 't': is neither an ISO 8601 date or time.*'31\.03\.2024'"):
        run(tmp_path, schema="schema.pbtxt")


# ---- splits ----------------------------------------------------------------------------------------------------------


RATINGS = [(f"u{u:02d}", s, (u * 7 + s) % 5) for u in range(40) for s in range(4)] + [("u03", 1, 2)] * 3


def ratings(found: list[tuple[str, int, int]], kind: str = "csv") -> str:
    if kind == "jsonl":
        return lines(*({"user": u, "session": s, "rating": r, "key": {"user": u}} for u, s, r in found))
    return "user,session,rating\n" + "".join(f"{u},{s},{r}\n" for u, s, r in found)


def placed(folder: Path, keys: list[str]) -> dict[tuple[Any, ...], set[str]]:
    where = defaultdict(set)
    for split in SPLITS:
        for row in rows(folder, split):
            where[tuple(row.get(key) for key in keys)].add(split)
    return where


@pytest.mark.parametrize("keys", [["user"], ["user", "session"], None], ids=str)
def test_equal_keys_stay_together(tmp_path: Path, keys: list[str] | None) -> None:
    """tensorflow/tfx#2359, huggingface/datasets#4261: rows of one user, or equal rows, in train and in eval."""
    mixed = [RATINGS[i * 59 % len(RATINGS)] for i in range(len(RATINGS))]
    data: dict[str, dict[str, str]] = {
        "one": {"a__csv": ratings(RATINGS)},
        "two": {"a__csv": ratings(mixed[:50]), "b__csv": ratings(mixed[50:])},
        "grown": {"a__csv": ratings([*RATINGS, *((f"u{u:02d}", 9, 1) for u in range(60))])},
        "lines": {"a__jsonl": ratings(mixed, "jsonl")},
    }
    found = {}
    for name, files in data.items():
        folder = tmp_path / name
        folder.mkdir()
        source(folder, **files)
        options: dict[str, Any] = {"split_by": keys} if keys else {}
        run(folder, splits=SPLITS, **(JSONL if name == "lines" else {}), **options)
        found[name] = placed(folder, keys or ["user", "session", "rating"])
        assert all(len(splits) == 1 for splits in found[name].values())
    assert {split for splits in found["one"].values() for split in splits} == set(SPLITS)
    assert found["one"] == found["two"]
    assert all(found["grown"][key] == splits for key, splits in found["one"].items())
    assert keys is None or found["lines"] == found["one"]


def test_a_key_inside_a_struct_and_one_that_is_nowhere(tmp_path: Path) -> None:
    """tensorflow/tfx PR 1973: a key that is not found must not scatter the rows of an entity."""
    source(tmp_path, a__jsonl=ratings(RATINGS, "jsonl"))
    run(tmp_path, splits=SPLITS, split_by=["key.user"], **JSONL)
    found = placed(tmp_path, ["user"])
    assert len(found) == 40 and all(len(splits) == 1 for splits in found.values())
    assert {split for splits in found.values() for split in splits} == set(SPLITS)
    with pytest.raises(ConfigError, match="split_by names the column 'key.usr', which is not in the data"):
        run(tmp_path, splits=SPLITS, split_by=["key.usr"], **JSONL)


def test_a_failed_build_leaves_the_published_data(tmp_path: Path) -> None:
    """mosaicml/streaming#646, apache/beam#27926: a second, smaller run; then one that fails."""
    days = [lines(*({"id": i} for i in ids)) for ids in (range(40), range(100, 106))]
    for day, count in zip(days, (5, 2), strict=True):
        source(tmp_path, day__jsonl=day)
        run(tmp_path, **JSONL, output={"dir": "out", "shards": count})
    source(tmp_path, day__jsonl='{"id": 200}\n{"id": 201\n{"id": 202}\n')
    with pytest.raises(BadRowsError, match=r"day\.jsonl, row 2: is not JSON"):
        run(tmp_path, **JSONL, output={"dir": "out", "shards": 2})
    assert list(by_id(tmp_path)) == list(range(100, 106))
    version = Layout(str(tmp_path / "out")).latest()
    assert len(list((tmp_path / "out" / "versions" / str(version) / "all").iterdir())) == 2
    assert not leftovers(tmp_path) and not verify(str(tmp_path / "out")).faults


@pytest.mark.slow
def test_a_default_value_reaches_the_preprocessing_function_dense(tmp_path: Path) -> None:
    """tensorflow/tfx#1337, tensorflow/transform#78: missing and NaN values where features are scaled."""
    parquet(
        tmp_path,
        id=pa.array(range(5)),
        age=pa.array([30, None, 20, 0, 10], pa.int64()),
        x=pa.array([1.0, 2.0, float("nan"), None, 3.0], pa.float32()),
    )
    (tmp_path / "p.py").write_text(
        "import tensorflow_transform as tft\n\n\ndef preprocessing_fn(inputs):\n"
        '    scaled = {"age": tft.scale_to_0_1(inputs["age"]), "x": tft.scale_to_z_score(inputs["x"])}\n'
        '    return {"id": inputs["id"], **scaled}\n'
    )
    declared = declare(
        tmp_path,
        *(feature("id", "INT", REQUIRED), feature("age", "INT", ""), feature("x", "FLOAT")),
        defaults(age="int_value: 0"),
    )
    run(tmp_path, preprocess="p.py", **PARQUET, **declared)
    found = by_id(tmp_path)
    assert [row["age"] for row in found.values()] == pytest.approx([1, 0, 2 / 3, 0, 1 / 3])
    assert [found[i]["x"] for i in (0, 1, 4)] == pytest.approx([-(1.5**0.5), 0, 1.5**0.5])
    fixed = declare(
        tmp_path, *(feature(n, k, REQUIRED) for n, k in (("id", "INT"), ("age", "INT"))), feature("x", "FLOAT")
    )
    with pytest.raises(BadRowsError, match="row 2, column 'age': missing value in a required column"):
        run(tmp_path, preprocess="p.py", **PARQUET, **fixed)
