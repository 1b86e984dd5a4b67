"""Refreshes under fire, for as long as you like; each failure prints the seed and the step that show it again.

    python tests/soak.py property --steps 1000 --seed 1   # random edits; each refresh against a build from nothing
    python tests/soak.py kill --steps 200 --seed 1        # kill -9 at random moments of builds and refreshes
    python tests/soak.py faults                           # every file operation of a refresh fails once, in every way
    python tests/soak.py flips --steps 500                # entries of the cache with a byte flipped, or cut

``tests/test_soak.py`` runs short forms of all.
"""

from __future__ import annotations

import argparse
import builtins
import contextlib
import errno
import io
import json
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pipeline import plan
from pipeline.build import BuildResult, build
from pipeline.config import load
from pipeline.gc import gc
from pipeline.layout import Layout, Manifest
from pipeline.verify import verify
from pipeline.versions import rollback
from transforms import cut, deal
from transforms.errors import RecordmillError

PREPROCESSING = """
import tensorflow_transform as tft

FACTOR = {factor}

def preprocessing_fn(inputs):
    return {{"id": inputs["id"], "x": tft.scale_to_0_1(inputs["x"]) * FACTOR}}
"""


def make_small() -> None:
    """Little data makes many partitions, blocks, sections and shards."""
    plan.PARTITION_BYTES = 1500
    cut.BLOCK_BYTES = 700
    deal.SECTION_PARTITIONS = (2, 5)


def files_of(folder: str) -> dict[str, bytes]:
    """All files of a version but its manifest, and of a SavedModel what TensorFlow writes the same each time."""
    found = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.relpath(os.path.join(parent, name), folder)
            if path != "manifest.json" and not path.startswith("transform_fn/"):
                found[path] = Path(parent, name).read_bytes()
    return found


def build_in(folder: Path, output: str, *, workers: int = 1) -> BuildResult:
    return build(load(str(folder / "config.yaml"), [f"runner.workers={workers}", f"output.dir={output}"]))


def leftovers(folder: Path) -> list[str]:
    return [os.path.join(parent, n) for parent, d, f in os.walk(folder) for n in [*d, *f] if ".tmp-" in n]


class World:
    """A source and a config that are edited at random."""

    def __init__(self, folder: Path, rng: random.Random, *, preprocess: bool) -> None:
        self.folder, self.rng = folder, rng
        self.preprocess, self.factor = preprocess, 1
        self.next_id = self.next_file = 0
        self.format = rng.choice(["csv", "jsonl"])
        self.options: dict[str, Any] = {}
        self.output: dict[str, Any] = {"dir": "out", "shard_size": 600}
        (folder / "data").mkdir(parents=True)
        for _ in range(rng.randint(1, 6)):
            self.add()
        self.write_config()

    def path(self, name: str) -> Path:
        return self.folder / "data" / name

    def names(self) -> list[str]:
        return sorted(os.listdir(self.folder / "data"))

    def rows(self, count: int) -> list[dict[str, Any]]:
        self.next_id += count
        return [{"id": self.next_id + i, "x": (self.next_id + i) % 97 / 4, "t": f"t{i % 5}"} for i in range(count)]

    def text(self, rows: list[dict[str, Any]], *, header: bool) -> str:
        if self.format == "jsonl":
            return "".join(json.dumps(row) + "\n" for row in rows)
        return ("id,x,t\n" if header else "") + "".join(f"{r['id']},{r['x']},{r['t']}\n" for r in rows)

    # -- edits

    def add(self) -> str:
        self.next_file += 1
        name = f"{self.rng.randint(1, 4)}-{self.next_file:04d}"
        self.path(name).write_text(self.text(self.rows(self.rng.randint(1, 150)), header=True))
        return f"add {name}"

    def append(self) -> str:
        name = self.rng.choice(self.names())
        with self.path(name).open("a") as stream:
            stream.write(self.text(self.rows(self.rng.randint(1, 60)), header=False))
        return f"append to {name}"

    def change(self) -> str:
        name = self.rng.choice(self.names())
        lines = self.path(name).read_text().splitlines(keepends=True)
        number = self.rng.randrange(len(lines)) if self.format == "jsonl" else self.rng.randrange(1, max(len(lines), 2))
        if number < len(lines):
            lines[number] = self.text(self.rows(1), header=False)
        self.path(name).write_text("".join(lines))
        return f"change line {number} of {name}"

    def delete(self) -> str:
        if len(self.names()) < 2:
            return self.add()
        name = self.rng.choice(self.names())
        self.path(name).unlink()
        return f"delete {name}"

    def rename(self) -> str:
        name = self.rng.choice(self.names())
        self.next_file += 1
        to = f"{self.rng.randint(1, 4)}-{self.next_file:04d}"
        self.path(name).rename(self.path(to))
        return f"rename {name} to {to}"

    def touch(self) -> str:
        name = self.rng.choice(self.names())
        os.utime(self.path(name), (1, 1))
        return f"touch {name}"

    def option(self) -> str:
        choices: list[tuple[dict[str, Any], str, list[Any]]] = [
            (self.output, "shuffle", ["none", "blocks", "rows"]),
            (self.output, "seed", [0, 1]),
            (self.output, "level", [1, 6]),
            (self.output, "compression", ["gzip", "none", "zlib"]),
            (self.options, "splits", [None, {"train": 0.7, "eval": 0.3}]),
            (self.options, "max_bad_rows", [0, 5]),
        ]
        where, key, values = self.rng.choice(choices)
        where[key] = self.rng.choice(values)
        return f"{key}: {where[key]}"

    def sharding(self) -> str:
        for key in ("shards", "shard_size"):
            self.output.pop(key, None)
        key, value = self.rng.choice([("shards", 3), ("shards", 1), ("shard_size", 600), ("shard_size", 3000)])
        self.output[key] = value
        return f"{key}: {value}"

    def spans(self) -> str:
        self.options["spans"] = self.rng.choice([None, None, "all", "window"])
        return f"spans: {self.options['spans']}"

    def schema(self) -> str:
        self.options["schema"] = self.rng.choice([None, "some", "more"])
        return f"schema: {self.options['schema']}"

    def code(self) -> str:
        if not self.preprocess:
            return self.append()
        self.factor = self.rng.choice([1, 2])
        return f"code: factor {self.factor}"

    def write_config(self) -> None:
        source: dict[str, Any] = {"format": self.format, "files": "data/*"}
        if self.options.get("spans"):
            source["files"] = "data/{SPAN}-*"
            source |= {"window": 2} if self.options["spans"] == "window" else {}
        config = {"name": "d", "source": source, "output": self.output}
        config |= {key: v for key, v in self.options.items() if v is not None and key not in ("spans", "schema")}
        if self.options.get("schema"):
            features = {"some": "id x", "more": "x t id"}[self.options["schema"]].split()
            kinds = {"id": "INT", "x": "FLOAT", "t": "BYTES"}
            text = "".join(
                f'feature {{ name: "{f}" type: {kinds[f]} shape {{}} presence {{ min_fraction: 1 }} }}\n'
                for f in features
            )
            (self.folder / "schema.pbtxt").write_text(text)
            config["schema"] = "schema.pbtxt"
        if self.preprocess:
            (self.folder / "preprocessing.py").write_text(PREPROCESSING.format(factor=self.factor))
            config["preprocess"] = "preprocessing.py"
            if config.get("splits"):
                config["analyze"] = "all"
        (self.folder / "config.yaml").write_text(json.dumps(config))

    def edit(self) -> str:
        edits: list[Callable[[], str]] = [self.add, self.append, self.append, self.change, self.change, self.delete]
        edits += [self.rename, self.touch, self.option, self.sharding, self.spans, self.schema, self.code]
        said = self.rng.choice(edits)()
        self.write_config()
        return said


def compare(folder: Path, refreshed: BuildResult) -> None:
    """The refresh against a build of the same in an empty folder."""
    shutil.rmtree(folder / "nothing", ignore_errors=True)
    fresh = build_in(folder, "nothing")
    left, right = files_of(refreshed.path), files_of(fresh.path)
    assert left.keys() == right.keys(), sorted(left.keys() ^ right.keys())
    for name, content in left.items():
        assert content == right[name], name
    one, other = (Manifest.load(os.path.join(result.path, "manifest.json")) for result in (refreshed, fresh))
    # A file that is called otherwise, and changes nothing, makes no new version: its old name stays in the manifest.
    assert [s.fingerprint for s in one.sources] == [s.fingerprint for s in other.sources]
    for key in ("key", "schema_digest", "transform_digest", "totals", "splits", "analyzers"):
        mine, theirs = getattr(one, key), getattr(other, key)
        assert mine == theirs, f"{key}: {_differences(mine, theirs)}"


def _differences(mine: Any, theirs: Any) -> list[tuple[str, str]]:
    pairs = zip(str(mine).split(", "), str(theirs).split(", "), strict=False)
    return [pair for pair in pairs if pair[0] != pair[1]][:5]


def property_test(folder: Path, *, steps: int, seed: int, preprocess: bool = False) -> None:
    """Random edits, rollbacks and gcs; after each, the refresh is compared with a build from nothing."""
    rng = random.Random(seed)
    world = World(folder, rng, preprocess=preprocess)
    for step in range(steps):
        said = world.edit()
        if rng.random() < 0.1 and (versions := Layout(str(folder / "out")).published()):
            rollback(str(folder / "out"), rng.choice(versions))
            said += ", rollback"
        if rng.random() < 0.1 and (folder / "out").exists():
            gc(str(folder / "out"), keep=rng.randint(1, 3))
            said += ", gc"
        try:
            result = build_in(folder, "out", workers=rng.choice([1, 1, 2]))
            compare(folder, result)
            assert not leftovers(folder)
        except BaseException:
            print(f"seed {seed}, step {step}: {said}; config {(folder / 'config.yaml').read_text()}")
            raise
        if step % 50 == 49:
            print(f"{step + 1} steps: {said}")
            for version in Layout(str(folder / "out")).published():
                faults = verify(str(folder / "out"), version=version).faults
                assert not faults, (version, faults[:3])


def kill_test(folder: Path, *, steps: int, seed: int, workers: int = 2) -> None:
    """Builds in processes of their own that are killed at a random moment, and the build after each."""
    rng = random.Random(seed)
    world = World(folder, rng, preprocess=False)
    build_in(folder, "out")
    code = "import sys; sys.path.insert(0, 'tests'); import soak; soak.make_small()\nfrom pathlib import Path\n"
    code += "print('ready', flush=True); sys.stdin.readline()\n"
    code += f"soak.build_in(Path({str(folder)!r}), 'out', workers={workers})"
    killed = 0
    for step in range(steps):
        said = world.edit() if rng.random() < 0.8 else "nothing"
        if rng.random() < 0.3:
            shutil.rmtree(folder / "out" / "cache", ignore_errors=True)
        before = Layout(str(folder / "out")).latest()
        child = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=Path(__file__).parent.parent,
            start_new_session=True,
        )
        assert child.stdin is not None and child.stdout is not None
        child.stdout.readline()
        child.stdin.write(b"\n")
        child.stdin.flush()
        time.sleep(rng.uniform(0.0, 1.2))
        killed += child.poll() is None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        latest = Layout(str(folder / "out")).latest()
        try:
            assert latest is not None
            assert not verify(str(folder / "out"), version=latest).faults
            if latest != before:
                print(f"step {step}: it was done already")
            cache = folder / "out" / "cache"
            committed = {path: path.stat().st_mtime_ns for path in cache.glob("*/*.blocks")}
            result = build_in(folder, "out")
            again = [path for path, time_ in committed.items() if path.stat().st_mtime_ns != time_]
            assert not again, f"built again: {again}"
            compare(folder, result)
            assert not leftovers(folder)
        except BaseException:
            print(f"seed {seed}, step {step}: {said}; config {(folder / 'config.yaml').read_text()}")
            raise
    print(f"{killed} of {steps} builds were killed before they were done")


class Faults:
    """File operations below a folder that fail: the one with the number ``at`` (None: none), by ``number``."""

    def __init__(self, folder: Path, *, at: int | None, number: int) -> None:
        self.folder, self.at, self.number = str(folder), at, number
        self.count = 0
        self.failed: str | None = None

    def meet(self, path: object, what: str) -> bool:
        """Counts an operation; raises when it is the one to fail, or says True when a read is to be cut short."""
        if not isinstance(path, str | os.PathLike) or not os.path.abspath(os.fspath(path)).startswith(self.folder):
            return False
        self.count += 1
        if self.at is None or self.count - 1 != self.at:
            return False
        self.failed = f"{what} {path}"
        if what == "read" and self.number == 0:
            return True
        raise OSError(self.number or errno.EIO, os.strerror(self.number or errno.EIO), os.fspath(path))

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        faults, patched = self, {}
        for name in ("replace", "rename", "link", "unlink", "makedirs", "listdir"):
            patched[name] = getattr(os, name)
            setattr(os, name, self._wrap(patched[name], name))
        names: dict[int, str] = {}
        fsync, file_io, opened = os.fsync, io.FileIO, builtins.open

        class FaultyFile(io.FileIO):
            def __init__(self, path: Any, *args: Any, **options: Any) -> None:
                faults.meet(path, "open")
                super().__init__(path, *args, **options)
                names[self.fileno()] = str(path)

            def write(self, content: Any) -> Any:
                faults.meet(str(self.name), "write")
                return super().write(content)

            def readinto(self, buffer: Any) -> Any:
                if faults.meet(str(self.name), "read"):
                    return 0
                return super().readinto(buffer)

        def faulty_open(path: Any, *args: Any, **options: Any) -> Any:
            faults.meet(path, "open")
            return opened(path, *args, **options)

        def faulty_fsync(descriptor: int) -> None:
            faults.meet(names.get(descriptor, self.folder), "fsync")
            fsync(descriptor)

        io.FileIO, builtins.open, os.fsync = FaultyFile, faulty_open, faulty_fsync  # type: ignore[misc, assignment]
        try:
            yield
        finally:
            io.FileIO, builtins.open, os.fsync = file_io, opened, fsync  # type: ignore[misc]
            for name, function in patched.items():
                setattr(os, name, function)

    def _wrap(self, function: Any, name: str) -> Any:
        def faulty(path: Any = ".", *args: Any, **options: Any) -> Any:
            self.meet(path, name)
            return function(path, *args, **options)

        return faulty


KINDS = (errno.ENOSPC, errno.EIO, errno.EACCES, 0)  # 0: a read is cut short


def faults_test(folder: Path, *, seed: int, every: int = 1) -> int:
    """Each ``every``-th file operation of a refresh fails once, in one way after the other.  Returns how many did."""
    rng = random.Random(seed)
    world = World(folder, rng, preprocess=False)
    build_in(folder, "out")
    world.append()
    shutil.copytree(folder / "out", folder / "kept", symlinks=True)
    counter = Faults(folder, at=None, number=0)
    with counter():
        expected = files_of(build_in(folder, "out").path)
    print(f"{counter.count} file operations")
    done = 0
    for at in range(0, counter.count, every):
        shutil.rmtree(folder / "out")
        shutil.copytree(folder / "kept", folder / "out")
        before = Layout(str(folder / "out")).latest()
        faults = Faults(folder, at=at, number=KINDS[(at // every) % len(KINDS)])
        said = ""
        try:
            with faults():
                result = build_in(folder, "out")
            assert files_of(result.path) == expected, "another result"
        except (RecordmillError, OSError) as error:
            said = str(error)
        except BaseException:
            print(f"operation {at}: {faults.failed} ({faults.number})")
            raise
        try:
            latest = Layout(str(folder / "out")).latest()
            assert latest is not None and not verify(str(folder / "out"), version=latest).faults
            if said:
                assert str(folder) in said, f"names no path: {said}"
                assert latest == before or files_of(Layout(str(folder / "out")).version_dir(latest)) == expected
            again = build_in(folder, "out")
            assert files_of(again.path) == expected
            assert not leftovers(folder)
        except BaseException:
            print(f"operation {at}: {faults.failed} ({faults.number}), error {said!r}")
            raise
        done += 1
    return done


def flips_test(folder: Path, *, steps: int, seed: int) -> None:
    """Bytes of entries of the cache are flipped, or the entry is cut; the build after it notices, and is right."""
    rng = random.Random(seed)
    world = World(folder, rng, preprocess=False)
    for step in range(steps):
        said = world.edit()
        build_in(folder, "out")
        cache = folder / "out" / "cache"
        entries = [
            p for p in sorted(cache.rglob("*")) if p.is_file() and p.parent.name in ("profiles", "blocks", "buckets")
        ]
        path = rng.choice(entries)
        content = bytearray(path.read_bytes())
        at, cut_it = rng.randrange(len(content)), rng.random() < 0.3
        content[at] ^= 1 << rng.randrange(8)
        path.write_bytes(content[:at] if cut_it else content)
        if rng.random() < 0.7:
            world.append()
        else:
            shutil.rmtree(folder / "out" / "versions")
            (folder / "out" / "LATEST").unlink()
        try:
            compare(folder, build_in(folder, "out"))
        except BaseException:
            print(f"seed {seed}, step {step}: {said}; {path} at {at}{', cut' if cut_it else ''}")
            raise
        path.unlink(missing_ok=True)
    print(f"{steps} damaged entries")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("test", choices=["property", "kill", "faults", "flips"])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--preprocess", action="store_true", help="property: with a preprocessing_fn")
    parser.add_argument("--keep", metavar="DIR", help="copy the world to DIR when it fails")
    arguments = parser.parse_args()
    logging.getLogger("recordmill").setLevel(logging.CRITICAL)
    make_small()
    with tempfile.TemporaryDirectory() as name:
        folder, start = Path(name) / "world", time.monotonic()
        try:
            if arguments.test == "property":
                property_test(folder, steps=arguments.steps, seed=arguments.seed, preprocess=arguments.preprocess)
            elif arguments.test == "kill":
                kill_test(folder, steps=arguments.steps, seed=arguments.seed)
            elif arguments.test == "faults":
                print(f"{faults_test(folder, seed=arguments.seed)} faults")
            else:
                flips_test(folder, steps=arguments.steps, seed=arguments.seed)
        except BaseException:
            if arguments.keep:
                shutil.copytree(folder, arguments.keep, dirs_exist_ok=True)
            raise
    print(f"all right, in {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
