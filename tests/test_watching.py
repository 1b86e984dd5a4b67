"""What monitors are told of a build: event files, metrics, spans, lines of JSON."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from pipeline.build import BuildResult, build
from pipeline.cli import app
from pipeline.config import load
from pipeline.layout import Layout
from pipeline.spans import ENDPOINT, make_spans, send_spans


def write_config(folder: Path, *, rows: int = 300, bad: int = 0) -> str:
    lines = [f"{i},{i / 7},{'ab'[i % 2]}" for i in range(rows)] + ["x,y"] * bad
    (folder / "t.csv").write_text("n,x,c\n" + "\n".join(lines) + "\n")
    config = folder / "c.yaml"
    config.write_text(
        "name: t\nsource: {format: csv, files: t.csv}\noutput: {dir: out}\nmax_bad_rows: 10\n"
        "splits: {train: 0.8, eval: 0.2}\n"
    )
    return str(config)


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["build", *arguments])


# ---- TensorBoard -----------------------------------------------------------------------------------------------------


def test_events_are_read_by_tensorboard(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    first = build(load(write_config(tmp_path, bad=3)))
    second = build(load(write_config(tmp_path, rows=400)))
    assert build(load(str(tmp_path / "c.yaml"))).up_to_date  # is no build
    events = EventAccumulator(str(tmp_path / "out" / "logs"), size_guidance={"scalars": 0, "histograms": 0})
    events.Reload()
    found: defaultdict[str, dict[int, float]] = defaultdict(dict)
    for tag in events.Tags()["scalars"]:
        found[tag] = {event.step: event.value for event in events.Scalars(tag)}
    assert found["rows/read"] == {1: 303, 2: 400} and found["rows/bad"] == {1: 3, 2: 0}
    assert found["size/train"] == {1: first.splits["train"].num_bytes, 2: second.splits["train"].num_bytes}
    assert found["build/seconds"][1] == pytest.approx(first.seconds)
    assert found["megabytes_per_second/BuildBlocks"].keys() == {1, 2}
    assert 0 <= found["workers_waiting/BuildBlocks"][1] < 1
    assert {f"worker_seconds/{step}" for step in ("read", "convert", "encode", "compress", "write")} <= set(found)
    assert set(found["drift_train/n"]) == {2} and 0 < found["drift_train/n"][2] < 1
    assert found["missing_train/c"] == {1: 0, 2: 0} and found["unique_train/c"] == {1: 2, 2: 2}
    histograms = events.Histograms("train/n")
    assert [h.step for h in histograms] == [1, 2]
    assert histograms[1].histogram_value.num == second.splits["train"].rows
    assert histograms[1].histogram_value.max == pytest.approx(399, abs=20)


def test_a_build_is_published_although_its_events_cannot_be_written(tmp_path: Path) -> None:
    config = load(write_config(tmp_path))
    (tmp_path / "out").mkdir()
    build(config)
    logs = tmp_path / "out" / "logs"
    for path in logs.iterdir():
        path.unlink()
    logs.rmdir()
    logs.write_text("in the way")
    result = build(load(write_config(tmp_path, rows=310)))
    assert (tmp_path / "out" / "versions" / result.version).is_dir()


# ---- Prometheus ------------------------------------------------------------------------------------------------------


def samples(path: Path) -> dict[str, float]:
    families = text_string_to_metric_families(path.read_text())
    return {
        sample.name + "".join(f" {v}" for k, v in sorted(sample.labels.items()) if k != "name"): sample.value
        for family in families
        for sample in family.samples
    }


def test_metrics_of_a_success_and_of_a_failure(tmp_path: Path) -> None:
    metrics = tmp_path / "t.prom"
    assert run(write_config(tmp_path, bad=2), "--metrics", str(metrics)).exit_code == 0
    found = samples(metrics)
    assert found["recordmill_build_success"] == 1
    assert found["recordmill_build_rows read"] == 302 and found["recordmill_build_rows bad"] == 2
    assert found["recordmill_build_split_rows train"] + found["recordmill_build_split_rows eval"] == 300
    assert run(write_config(tmp_path, bad=11), "--metrics", str(metrics)).exit_code == 1
    failed = samples(metrics)
    assert failed["recordmill_build_success"] == 0
    assert failed["recordmill_build_last_success_timestamp_seconds"] == pytest.approx(
        found["recordmill_build_last_success_timestamp_seconds"]
    )
    assert failed["recordmill_build_last_run_timestamp_seconds"] > found["recordmill_build_last_run_timestamp_seconds"]
    assert failed["recordmill_build_rows read"] == 302
    nowhere = run(write_config(tmp_path), "--metrics", str(tmp_path / "no" / "t.prom"))
    assert nowhere.exit_code == 0 and "the metrics were not written" in nowhere.output


# ---- OpenTelemetry ---------------------------------------------------------------------------------------------------


@pytest.fixture
def result(tmp_path: Path) -> BuildResult:
    return build(load(write_config(tmp_path)))


def test_spans_of_a_build_of_its_stages_and_of_its_tasks(result: BuildResult) -> None:
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    make_spans("t", result, exporter)
    spans = {span.name: span for span in exporter.get_finished_spans()}
    whole = spans["build"]
    assert whole.attributes["recordmill.rows_read"] == 300 and whole.attributes["recordmill.name"] == "t"
    stage = spans["BuildBlocks"]
    assert stage.parent.span_id == whole.context.span_id
    tasks = [s for s in exporter.get_finished_spans() if s.parent and s.parent.span_id == stage.context.span_id]
    assert len(tasks) == 1 and "recordmill.seconds.encode" in tasks[0].attributes
    assert whole.start_time <= stage.start_time <= tasks[0].start_time + 1000
    assert (whole.end_time - whole.start_time) / 1e9 == pytest.approx(result.seconds, abs=1e-3)


def test_spans_reach_the_collector_that_the_environment_names(
    result: BuildResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    got: list[tuple[str, bytes]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        send_spans("t", result)
        assert not got  # nothing is sent unasked
        monkeypatch.setenv(ENDPOINT, f"http://127.0.0.1:{server.server_port}")
        send_spans("t", result)
        server.shutdown()
    ((path, content),) = got
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    request = ExportTraceServiceRequest.FromString(content)
    names = {span.name for r in request.resource_spans for scope in r.scope_spans for span in scope.spans}
    assert path == "/v1/traces" and {"build", "InferSchema", "BuildBlocks", "AssembleShards"} <= names


# ---- JSON ------------------------------------------------------------------------------------------------------------


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = [str(Path(sys.executable).with_name("recordmill")), "build", *arguments, "--log-format", "json"]
    return subprocess.run(program, capture_output=True, text=True, check=False)


def test_lines_of_json(tmp_path: Path) -> None:
    done = command(write_config(tmp_path, bad=1))
    assert done.returncode == 0 and done.stdout == ""
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert all({"time", "level", "message"} <= line.keys() for line in lines)
    report = lines[-1]["result"]
    assert report["format_version"] == 1 and report["rows_read"] == 301 and report["bad_rows"] == 1
    assert report["stages"] and "tasks" not in report


def test_errors_are_lines_of_json_too(tmp_path: Path) -> None:
    failed = command(write_config(tmp_path, bad=20))
    (line,) = [json.loads(line) for line in failed.stderr.splitlines() if "status" in line]
    assert failed.returncode == line["status"] == 1 and "20 bad rows" in line["message"]
    wrong = command(write_config(tmp_path), "--set", "output.level=0")
    (line,) = [json.loads(line) for line in wrong.stderr.splitlines()]
    assert wrong.returncode == line["status"] == 2 and "output.level" in line["message"]


def test_the_docs_name_every_key_of_the_report(result: BuildResult) -> None:
    text = (Path(__file__).parent.parent / "docs" / "watching.md").read_text(encoding="utf-8")
    table = text[text.index("| key |") :]
    plain = result.to_plain()
    named = set(re.findall(r"`(\w+)`", table))
    assert plain.keys() <= named
    assert plain["stages"][0].keys() | plain["splits"]["train"].keys() <= named
    report = Layout(result.path.split("/versions/")[0]).report_path(result.version)
    assert json.loads(Path(report).read_text()) == json.loads(json.dumps(plain))
