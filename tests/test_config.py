"""The config: the contract's YAML, and every fault of it named with its line and its cure."""

from __future__ import annotations

import pickle
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config import Config, load
from pipeline.values import parse_size
from transforms.errors import ConfigError

CONTRACT = """\
name: flights
source:
  format: csv
  files: data/flights-*.csv.gz
schema: schema.pbtxt
splits: {train: 0.8, eval: 0.1, test: 0.1}
split_by: [tailnum]
preprocess: preprocessing.py
analyze: train
output:
  dir: out/flights
  compression: gzip
  level: 1
  shard_size: 128MiB
  shuffle: blocks
  seed: 0
runner: {name: direct, workers: 2}
"""
SMALL = """\
name: t
source: {format: csv, files: data/*.csv.gz}
output:
  dir: out
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data" / "old").mkdir(parents=True)
    for name in ("flights-02.csv.gz", "flights-01.csv.gz", "old/flights-00.csv.gz", "[odd].csv.gz"):
        (tmp_path / "data" / name).write_text("a\n1\n")
    (tmp_path / "schema.pbtxt").write_text("")
    (tmp_path / "preprocessing.py").write_text("")
    return tmp_path


def load_text(folder: Path, text: str, *overrides: str) -> Config:
    path = folder / "c.yaml"
    path.write_text(textwrap.dedent(text))
    return load(str(path), overrides)


def fails(folder: Path, text: str, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_text(folder, text, *overrides)
    return str(caught.value).replace(str(folder) + "/", "")


def test_the_contract(folder: Path) -> None:
    config = load_text(folder, CONTRACT)
    assert config.files == tuple(str(folder / "data" / f"flights-0{n}.csv.gz") for n in (1, 2))
    assert [config.written(path) for path in config.files] == ["data/flights-01.csv.gz", "data/flights-02.csv.gz"]
    assert config.split_names == ("train", "eval", "test")
    assert config.analyzed_split == "train"
    assert config.output.shard_bytes == 128 << 20
    assert config.output.num_shards("train") is None
    assert config.output_dir == str(folder / "out" / "flights")
    assert config.schema_path == str(folder / "schema.pbtxt")
    assert config.preprocess_path == str(folder / "preprocessing.py")
    assert config.runner.workers == 2


def test_defaults(folder: Path) -> None:
    config = load_text(folder, SMALL)
    assert config.split_names == ("all",)
    assert config.split_fractions == {"all": 1.0}
    assert config.analyzed_split is config.schema_path is config.preprocess_path is None
    assert config.runner.workers >= 1
    assert not config.allow_empty
    assert config.source.options == {}


def test_canonical_names_no_machine_and_no_workers(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    canonical = load_text(folder, CONTRACT).canonical()
    assert str(folder) not in str(canonical)
    assert "runner" not in canonical
    assert canonical["source"]["files"] == ["data/flights-*.csv.gz"]
    assert canonical["schema"] == "schema.pbtxt"
    assert canonical["output"]["shard_size"] == 128 << 20
    assert canonical == load_text(folder, CONTRACT, "runner.workers=1", "output.shard_size=134217728").canonical()
    assert canonical != load_text(folder, CONTRACT, "output.seed=1").canonical()


def test_a_config_travels(folder: Path) -> None:
    config = load_text(folder, CONTRACT)
    assert pickle.loads(pickle.dumps(config)).files == config.files


def test_files_in_many_ways(folder: Path) -> None:
    names = ["data/old/*", "data/**/*.gz", "data/[odd].csv.gz", str(folder / "data" / "flights-01.csv.gz")]
    config = load_text(folder, SMALL, f"source.files=[{','.join(repr(name) for name in names)}]")
    assert [config.written(path) for path in config.files] == [
        "data/old/flights-00.csv.gz",
        "data/[odd].csv.gz",
        str(folder / "data" / "flights-01.csv.gz"),
        "data/flights-02.csv.gz",
    ]
    assert len(set(config.files)) == 4


def test_overrides_are_yaml(folder: Path) -> None:
    config = load_text(
        folder, CONTRACT, "output.level=6", "splits={a: 0.5, b: 0.5}", "analyze=all", "schema=", "runner.workers=7"
    )
    assert (config.output.level, config.split_names, config.runner.workers) == (6, ("a", "b"), 7)
    assert config.schema_file is None
    assert config.analyzed_split is None
    assert load_text(folder, SMALL, 'source.delimiter="\\t"').source.options == {"delimiter": "\t"}
    assert load_text(folder, SMALL, "splits.train=1").splits == {"train": 1.0}


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [("128MiB", 128 << 20), ("64MB", 64_000_000), ("1.5 KiB", 1536), ("7", 7), (12, 12), ("2gib", 2 << 30)],
)
def test_sizes(text: object, num_bytes: int) -> None:
    assert parse_size(text) == num_bytes


@pytest.mark.parametrize("text", ["", "MiB", "-1", "12 parsecs", "1,5MB", None, True, "0", 0, [1]])
def test_not_sizes(text: object) -> None:
    with pytest.raises(ValueError, match="must be"):
        parse_size(text)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("output.levle=6", "output.levle 6: unknown key; did you mean 'level'?"),
        ("level=6", "level 6: unknown key; did you mean output.level?"),
        ("output.quux=6", "output.quux 6: unknown key; output takes dir, mirror, compression"),
        ("output.level=10", "output.level 10: must be at most 9"),
        ("output.level=six", "output.level 'six': must be a whole number"),
        ("output.level=true", "output.level True: must be a whole number"),
        ("output.compression=zstd", "must be one of 'gzip', 'zlib', 'none'"),
        ("output.seed=-1", "must be at least 0"),
        ("output.shard_size=big", "output.shard_size 'big': must be a size such as 128MiB"),
        ("output.shards=0", "must be a number of shards"),
        ("output.shards={all: 2, eval: 1}", "must give a number to each split; the splits are all"),
        ("output.gzip_members=many", "must be one of 'blocks', 'single'"),
        ("output=", "output: must be keys with values"),
        ("output.dir=", "output.dir: must be text"),
        ("runner.workers=0", "runner.workers 0: must be at least 1"),
        ("runner.name=dask", "runner.name 'dask': must be one of 'direct', 'flink', 'spark'"),
        ("runner.master=localhost:1", "is for a runner on a cluster, and runner.name is direct"),
        ("runner={name: flink, environment: docker}", "shared_filesystem: must be true for docker workers"),
        ("name=a/b", "name 'a/b': becomes part of file names"),
        ("name=2024-01-01", "name: must be text; put it in quotes"),
        ("source.format=xls", "must be one of 'csv', 'jsonl', 'parquet'"),
        ("source.sequence=true", "is for tfrecord, and source.format is csv; leave it out"),
        ("source={format: csv, files: 'data/*', quote: '|', delimiter: '|'}", "is the same character as another"),
        ("source.encoding=klingon", "is no encoding of text that Python knows"),
        ("source.escape=ab", "must be one ASCII character other than a line end"),
        ("source.files=[]", "source.files []: must not be empty"),
        ("source.files=3", "source.files 3: must be text or a list"),
        ("source.files=data", "is a folder; write data/* for"),
        ("source.files=data/2024-*.csv", "data holds [odd].csv.gz, flights-01.csv.gz, flights-02.csv.gz, old"),
        ("source.files=gone/2024.csv", "matches no file"),
        ("source.delimiter=;;", "must be one ASCII character"),
        ("schema=gone.pbtxt", "schema 'gone.pbtxt': does not exist; looked for gone.pbtxt"),
        ("schema=data", "schema 'data': is a folder"),
        ("splits={train: 0.8, eval: 0.1}", "splits: the fractions add up to 0.9; make them add up to 1"),
        ("splits={train: 1.5}", "'train' gets 1.5"),
        ("splits={}", "splits: must not be empty"),
        ("splits={a/b: 1}", "'a/b' cannot name a split"),
        ("splits={transform_fn: 1}", "'transform_fn' cannot name a split"),
        ("splits=[train]", "splits ['train']: must be keys with values"),
        ("split_by=x", "split_by 'x': has nothing to split: add splits"),
        ("split_by=[]", "is an empty list"),
        ("split_by=[x, x]", "names 'x' twice"),
        ("analyze=train", "there are no splits"),
        ("analyze=eval", "must be one of 'train', 'all'"),
        ("analysis=quick", "must be one of 'columnar', 'stock'"),
        ("allow_empty=1", "must be true or false"),
    ],
)  # fmt: skip
def test_each_fault_has_its_message(folder: Path, override: str, message: str) -> None:
    text = fails(folder, SMALL, override)
    assert text.startswith(f"--set {override}: ")
    assert message in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["output.shards=2", "output.shard_size=1MiB"], "leave one of them out"),
        (["output.gzip_members=single", "output.compression=zlib"], "is for gzip, and output.compression is zlib"),
        (["source.format=parquet", "source.null_values=[NA]"], "is for csv, and source.format is parquet"),
        (["splits={a: 0.5, b: 0.5}", "preprocess=preprocessing.py"], "the splits are a, b; set analyze: all"),
        (["output"], "--set output: takes KEY=VALUE"),
        (["name.x=1"], "--set name.x=1: name holds a value, not keys"),
        (["name=[1"], "--set name=[1:1: not valid YAML"),
    ],
)
def test_contradictions(folder: Path, overrides: list[str], message: str) -> None:
    assert message in fails(folder, SMALL, *overrides)


def test_all_problems_at_once_with_their_lines(folder: Path) -> None:
    text = fails(
        folder,
        """\
        source:
          format: cvs
          files: [data/*.csv.gz, data/none*]
        splits: {train: 0.8, eval: 0.1}
        output: {dir: out,
                 levle: 3}
        """,
    )
    assert text.splitlines() == [
        "c.yaml: 5 problems:",
        "  c.yaml: name: is missing; add it, for example `name: flights`",
        "  c.yaml:2: source.format 'cvs': must be one of 'csv', 'jsonl', 'parquet', 'arrow', 'orc', 'avro', "
        "'tfrecord', 'text', 'libsvm', 'images', 'webdataset', 'sql', 'bigquery'",
        "  c.yaml:3: source.files[1] 'data/none*': matches no file; data holds [odd].csv.gz, flights-01.csv.gz, "
        "flights-02.csv.gz, old",
        "  c.yaml:4: splits: the fractions add up to 0.9; make them add up to 1, or leave splits out",
        "  c.yaml:6: output.levle 3: unknown key; did you mean 'level'?",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "c.yaml: is empty; `recordmill init` writes a config"),
        ("- a", "c.yaml: does not hold keys with values at its top"),
        ("name: a\nname: b", "c.yaml:2: not valid YAML: found duplicate key"),
        ("name: [a", "not valid YAML"),
        ("name: !!python/object/apply:os.getcwd []", "c.yaml:1: not valid YAML"),
    ],
)
def test_not_a_config(folder: Path, text: str, message: str) -> None:
    assert message in fails(folder, text)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="gone.yaml: cannot be read: No such file"):
        load(str(tmp_path / "gone.yaml"))
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load(str(tmp_path / "latin.yaml"))


def test_a_dangling_link_is_named(folder: Path) -> None:
    (folder / "data" / "flights-03.csv.gz").symlink_to("nowhere")
    assert "flights-03.csv.gz is a link to a file that does not exist" in fails(folder, SMALL)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=8))
def test_fractions_of_any_data_add_up(tmp_path_factory: pytest.TempPathFactory, parts: list[int]) -> None:
    folder = tmp_path_factory.mktemp("c")
    (folder / "a.csv").write_text("")
    splits = {f"s{i}": part / sum(parts) for i, part in enumerate(parts)}
    config = load_text(folder, f"name: t\nsource: {{format: csv, files: a.csv}}\noutput: {{dir: o}}\nsplits: {splits}")
    assert config.splits == splits


def test_the_folder_of_the_config_is_no_pattern(folder: Path) -> None:
    odd = folder / "runs [1] *"
    (odd / "data").mkdir(parents=True)
    (odd / "data" / "a.csv.gz").write_text("a\n1\n")
    assert load_text(odd, SMALL).files == (str(odd / "data" / "a.csv.gz"),)
    assert load_text(odd, SMALL, "source.files=../data/*-01*").files == (str(folder / "data" / "flights-01.csv.gz"),)
    assert "data holds a.csv.gz" in fails(odd, SMALL, "source.files=data/2024-*/x*")
