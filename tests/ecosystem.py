"""Other people's programs on what recordmill wrote, each in an environment of its own, since they pin other versions.

    python tests/ecosystem.py               # all of them
    python tests/ecosystem.py tfdv airflow

The environments are made with pip and kept in ``~/.cache/recordmill-tests``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from clusters import get

from pipeline.build import build
from pipeline.cli import app
from pipeline.compare import distances
from pipeline.config import load
from pipeline.layout import Layout
from pipeline.statistics import statistics_of

QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONWARNINGS": "ignore"}


def environment(name: str, *installs: list[str]) -> Path:
    """The folder of the programs of an environment that has what the pip commands install."""
    steps = ["{folder}/env/bin/pip install --quiet " + " ".join(f"'{part}'" for part in parts) for parts in installs]
    script = " && ".join([f"{sys.executable} -m venv --copies {{folder}}/env", *steps])
    marker = "-".join(["env", name, *(part.replace("=", "") for part in installs[0][:1])])
    folder = get(marker, ["/bin/sh", "-ec", script])
    making = f"{folder}.new"  # where pip believed it to be, when it wrote the first lines of the programs
    for program in (folder / "env" / "bin").iterdir():
        if program.is_file() and not program.is_symlink():
            content = program.read_bytes()
            if content.startswith(b"#!") and making.encode() in content:
                program.write_bytes(content.replace(making.encode(), str(folder).encode()))
    return folder / "env" / "bin"


def run(command: list[str], script: str | None = None, *, fails: bool = False, **variables: str) -> str:
    done = subprocess.run(
        command, input=script, capture_output=True, text=True, timeout=900, env=os.environ | QUIET | variables
    )
    if (done.returncode != 0) != fails:
        raise SystemExit(
            f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
        )
    return done.stdout


def write_versions(folder: Path) -> list[str]:
    """The names of two versions, whose features moved in between."""
    config = folder / "c.yaml"
    config.write_text("name: t\nsource: {format: parquet, files: t.parquet}\noutput: {dir: out}\n")
    names = []
    for turn in range(2):
        rng = np.random.default_rng(turn)
        table = {
            "x": rng.normal(turn * 0.5, 1, 20_000),
            "i": rng.integers(0, 100 + 20 * turn, 20_000),
            "c": rng.choice(["a", "b", "c"], 20_000, p=[0.5, 0.3, 0.2] if turn == 0 else [0.3, 0.3, 0.4]),
        }
        pq.write_table(pa.table(table), folder / "t.parquet")
        names.append(build(load(str(config))).version)
    return names


# ---- TFDV ------------------------------------------------------------------------------------------------------------

TFDV = """
import json, sys
import tensorflow_data_validation as tfdv

before, now, shards = sys.argv[1:]
old, new = tfdv.load_stats_binary(before), tfdv.load_stats_binary(now)
schema = tfdv.infer_schema(new)
for feature in schema.feature:
    if feature.type == 1:
        feature.drift_comparator.infinity_norm.threshold = 1e-9
    else:
        feature.drift_comparator.jensen_shannon_divergence.threshold = 1e-9
found = tfdv.validate_statistics(new, schema, previous_statistics=old).drift_skew_info
moved = {info.path.step[0]: info.drift_measurements[0].value for info in found}

theirs = {f.path.step[0]: f for f in tfdv.generate_statistics_from_tfrecord(shards).datasets[0].features}
exact = {}
for ours in new.datasets[0].features:
    name = ours.path.step[0]
    other = theirs[name]
    if ours.HasField("num_stats"):
        a, b = ours.num_stats, other.num_stats
        pairs = [(a.mean, b.mean), (a.std_dev, b.std_dev), (a.min, b.min), (a.max, b.max), (a.num_zeros, b.num_zeros)]
    else:
        a, b = ours.string_stats, other.string_stats
        pairs = [(a.unique, b.unique), (a.avg_length, b.avg_length)]
        pairs += [(x.frequency, y.frequency) for x, y in zip(a.top_values, b.top_values)]
    pairs.append((a.common_stats.num_non_missing, b.common_stats.num_non_missing))
    exact[name] = max(abs(x - y) / max(1.0, abs(y)) for x, y in pairs)
print(json.dumps({"moved": moved, "exact": exact, "version": tfdv.__version__}))
"""


def tfdv(folder: Path) -> str:
    """Our stats.pb against the statistics that TFDV makes of our shards, and its drift against ours."""
    first, second = write_versions(folder)
    bin = environment(
        "tfdv",
        ["tensorflow==2.16.2", "tensorflow-metadata==1.16.1", "pandas==1.5.3", "numpy==1.26.4", "pyarrow==10.0.1"]
        + ["apache-beam==2.59.0", "protobuf==4.25.5", "joblib", "pyfarmhash", "setuptools<80"],
        ["--no-deps", "tensorflow-data-validation==1.16.1", "tfx-bsl==1.16.1", "google-api-python-client", "pytz"],
    )
    versions = folder / "out" / "versions"
    arguments = [
        str(versions / first / "stats.pb"),
        str(versions / second / "stats.pb"),
        f"{versions / second}/all/*.gz",
    ]
    found = json.loads(run([str(bin / "python"), "-", *arguments], TFDV).splitlines()[-1])
    layout = Layout(str(folder / "out"))
    old, new = (statistics_of(layout, version).datasets[0] for version in (first, second))
    ours = {distance.feature: distance.value for distance in distances(old, new)}
    assert ours.keys() == found["moved"].keys()
    apart = max(abs(ours[name] - found["moved"][name]) for name in ours)
    assert apart < 1e-9 and max(found["exact"].values()) < 1e-6, (ours, found)
    worst = max(found["exact"].values())
    return (
        f"TFDV {found['version']}: reads stats.pb; its statistics of our shards differ by {worst:.0e} at most, "
        f"its drift by {apart:.0e}"
    )


# ---- Airflow ---------------------------------------------------------------------------------------------------------


def airflow(folder: Path) -> str:
    """The DAG of ``recordmill schedule`` in a real Airflow: a build, and a wrong config, which is not tried again."""
    from typer.testing import CliRunner

    (folder / "t.csv").write_text("a,b\n" + "".join(f"{i},{i % 7}\n" for i in range(1000)))
    config = folder / "c.yaml"
    config.write_text("name: t\nsource: {format: csv, files: t.csv}\noutput: {dir: out}\n")
    dags = folder / "dags"
    alerted = folder / "alerted"
    arguments = ["schedule", str(config), "--for", "airflow", "-o", str(dags), "--on-failure", f"touch {alerted}"]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    bin = environment("airflow", ["apache-airflow==3.3.2"])
    variables = {
        "AIRFLOW_HOME": str(folder / "home"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
    }
    program = str(bin / "airflow")
    run([program, "db", "migrate"], **variables)
    run([program, "dags", "test", "recordmill-t"], **variables)
    assert Layout(str(folder / "out")).latest() is not None and not alerted.exists()
    config.write_text(config.read_text() + "nonsense: 1\n")
    told = run([program, "dags", "test", "recordmill-t"], fails=True, **variables)
    assert "trying again would not help" in told and told.count("[DAG TEST] starting") == 1 and alerted.exists()
    version = run([program, "version"], **variables).split()[-1]
    return f"Airflow {version}: the DAG builds; a wrong config fails once, and the alert comes"


CHECKS: dict[str, Callable[[Path], str]] = {"tfdv": tfdv, "airflow": airflow}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("check", nargs="*", default=list(CHECKS), help=", ".join(CHECKS))
    for name in parser.parse_args().check:
        with tempfile.TemporaryDirectory() as folder:
            print(f"{name}: {CHECKS[name](Path(folder))}", flush=True)


if __name__ == "__main__":
    main()
