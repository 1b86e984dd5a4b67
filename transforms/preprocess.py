"""The user's ``preprocessing_fn``, and the transform graph that the analysis makes of it."""

from __future__ import annotations

import ast
import functools
import importlib.util
import os
import sys
import sysconfig
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from importlib.machinery import PathFinder
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from transforms.errors import ConfigError, SchemaError
from transforms.fingerprint import digest, hash_python, outline
from transforms.schema import Schema
from transforms.tensors import (
    TensorReader,
    TensorWriter,
    ancestors,
    describe_row,
    graph_error,
    import_tensorflow,
    type_specs,
)

if TYPE_CHECKING:
    from types import ModuleType

FUNCTION = "preprocessing_fn"
LIBRARIES = ("tensorflow", "tensorflow_transform", "tfx_bsl")  # whose versions may change what the function makes

MANY_ROWS = 1000  # of a batch: a function that fails on more is at fault itself

_loading = threading.RLock()


class Preprocessing:
    """The ``preprocessing_fn`` of a Python file; pickled as the path, and loaded again where it arrives."""

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)

    @classmethod
    def load(cls, path: str) -> Preprocessing:
        """Looks at the file without running it; it runs, and imports TensorFlow, when ``function`` is asked for.

        Raises ConfigError, which names the path, when it cannot be read or has no ``preprocessing_fn``.
        """
        loaded = cls(path)
        if not _may_define(_parse(loaded.path), FUNCTION):
            raise ConfigError(
                f"{path}: has no function {FUNCTION}; define `def {FUNCTION}(inputs):` that returns a dict of features"
            )
        return loaded

    def __reduce__(self) -> tuple[type[Preprocessing], tuple[str]]:
        return Preprocessing, (self.path,)

    @functools.cached_property
    def digest(self) -> str:
        """A hash of the file and of the project's modules that it imports, and of the libraries' versions.

        Comments and layout do not count.  Modules that are imported under a name made at run time, and files that the
        function reads, are not seen.
        """
        modules = {name: hash_python(path) for name, path in _project_modules(self.path).items()}
        return digest({"modules": modules, "libraries": {name: version(name) for name in LIBRARIES}})

    def outline(self) -> dict[str, dict[str, list[str]]]:
        """``fingerprint.outline`` of the file (under ``""``) and of the project's modules that it imports, by name."""
        return {name: outline(path) for name, path in _project_modules(self.path).items()}

    @functools.cached_property
    def function(self) -> Callable[[Any], Any]:
        """``preprocessing_fn``, with integers and floats of other widths cast to what an Example holds.

        Raises ConfigError with the user's line when the file cannot be imported.
        """
        function = getattr(_import(self.path), FUNCTION, None)
        if not callable(function):
            raise ConfigError(f"{self.path}: {FUNCTION} is not a function; define `def {FUNCTION}(inputs):`")
        return _with_feature_types(function)

    def where(self, error: BaseException) -> str:
        """The user's line that an error comes from, for messages: ``preprocessing.py:12: x = y``."""
        return _user_line(error, os.path.dirname(self.path)) or self.path


def _parse(path: str) -> ast.Module:
    try:
        return ast.parse(Path(path).read_bytes(), filename=path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (SyntaxError, ValueError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        raise ConfigError(f"{path}{line}: is not Python: {error}") from error


def _may_define(tree: ast.Module, name: str) -> bool:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return True
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == name:
            return True
        if isinstance(node, ast.alias) and (node.asname or node.name) in (name, "*"):
            return True
    return False


def _import(path: str) -> ModuleType:
    """The file as a new module; its folder is on ``sys.path`` meanwhile, and modules beside it are imported anew."""
    folder, name = os.path.dirname(path), f"preprocessing_{digest(path)}"
    import_tensorflow()
    with _loading:
        _forget_modules_of(folder, _project_modules(path))
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise ConfigError(f"{path}: is not a Python file; give it a name that ends in .py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        sys.path.insert(0, folder)
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            del sys.modules[name]
            line = _user_line(error, folder) or path
            raise ConfigError(f"{line}: cannot be imported: {type(error).__name__}: {error}") from error
        finally:
            sys.path.remove(folder)
    return module


def _forget_modules_of(folder: str, modules: Mapping[str, str]) -> None:
    """Takes modules out of ``sys.modules`` that are to come from the folder: they may be older, or another's."""
    ours = __name__.partition(".")[0]
    for name, location in modules.items():
        if location.startswith(folder + os.sep) and name.partition(".")[0] != ours:
            sys.modules.pop(name, None)


def _user_line(error: BaseException, folder: str) -> str | None:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(folder + os.sep)]
    return f"{frames[-1].filename}:{frames[-1].lineno}: {frames[-1].line}" if frames else None


def _with_feature_types(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(function)
    def preprocessing_fn(inputs: Any) -> Any:
        outputs = function(inputs)
        if not isinstance(outputs, dict):
            return outputs
        return {name: _as_feature(name, tensor) for name, tensor in outputs.items()}

    return preprocessing_fn


def _as_feature(name: str, tensor: Any) -> Any:
    """A tensor of a type that an Example holds; float64 that float32 cannot hold fails when it meets the data."""
    tf = import_tensorflow()
    if not hasattr(tensor, "dtype") or tensor.dtype in (tf.string, tf.int64, tf.float32):
        return tensor
    if tensor.dtype.is_integer or tensor.dtype.is_bool:
        return tf.cast(tensor, tf.int64)
    if not tensor.dtype.is_floating:
        return tensor
    cast = tf.cast(tensor, tf.float32)
    if tensor.dtype == tf.float64:
        was, is_now = (getattr(t, "flat_values", getattr(t, "values", t)) for t in (tensor, cast))
        message = f"feature {name!r}: a float64 is too large for float32"
        with tf.control_dependencies(
            [tf.debugging.assert_equal(tf.math.is_inf(was), tf.math.is_inf(is_now), message=message)]
        ):
            cast = tf.nest.map_structure(tf.identity, cast, expand_composites=True)
    return cast


# ---- the modules that a file imports ---------------------------------------------------------------------------------


def _project_modules(path: str) -> dict[str, str]:
    """Name -> path of the file and of all modules that it imports, directly or not, and that are not installed."""
    folder = os.path.dirname(path)
    found: dict[str, str] = {"": path}
    todo = [("", path)]
    while todo:
        importer, file = todo.pop()
        is_package = os.path.basename(file) == "__init__.py"
        for name in _imported(ast.parse(Path(file).read_bytes(), filename=file), importer, is_package):
            for module, location in _locate(name, folder):
                if module not in found:
                    found[module] = location
                    todo.append((module, location))
    return dict(sorted(found.items()))


def _imported(tree: ast.Module, importer: str, is_package: bool) -> Iterator[str]:
    """Absolute names of what the module may import; ``from a import b`` may mean the module ``a.b``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = importer.split(".") if importer else []
            base = parents[: len(parents) - node.level + is_package] if node.level else []
            parts = [*base, *(node.module.split(".") if node.module else [])]
            if parts:
                yield ".".join(parts)
            yield from (".".join([*parts, alias.name]) for alias in node.names)


def _locate(name: str, folder: str) -> Iterator[tuple[str, str]]:
    """The files of a module and of the packages around it; nothing for what is installed or is not a module."""
    if name.partition(".")[0] in sys.stdlib_module_names:
        return
    search: list[str] = [folder, *sys.path]
    parts = name.split(".")
    for depth in range(1, len(parts) + 1):
        spec = PathFinder.find_spec(".".join(parts[:depth]), search)
        if spec is None or (spec.origin and _is_installed(spec.origin)):
            return
        if spec.origin and spec.origin.endswith(".py"):
            yield ".".join(parts[:depth]), spec.origin
        if spec.submodule_search_locations is None:
            return
        search = list(spec.submodule_search_locations)


@functools.cache
def _installed_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return tuple(os.path.realpath(paths[key]) + os.sep for key in ("stdlib", "platstdlib", "purelib", "platlib"))


def _is_installed(path: str) -> bool:
    real = os.path.realpath(path)
    return real.startswith(_installed_folders()) or f"{os.sep}site-packages{os.sep}" in real


# ---- the transform graph ---------------------------------------------------------------------------------------------


class TransformGraph:
    """The SavedModel of an analysis, applied to feature batches.  It is loaded once in a process."""

    def __init__(self, transform_dir: str, schema: Schema) -> None:
        with _loading:
            self._graph = _load_graph(os.path.abspath(transform_dir), schema)

    def output_schema(self) -> pa.Schema:
        """The transformed features by name: int64, float32 and large_binary, lists and fixed-size lists of these."""
        return self._graph.writer.schema

    def transform(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """``transform_good`` of a batch in which no row may fail.  Raises SchemaError that shows the first."""
        made, failed = self.transform_good(batch)
        for row, reason in failed.items():
            raise SchemaError(f"row {row + 1} of a batch ({describe_row(batch, row)}): {reason}")
        return made

    def transform_good(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, dict[int, str]]:
        """The transformed features of a feature batch, rows in the same order; and the positions of rows that are not
        among them, since the graph fails on each alone, with TensorFlow's reason.

        Raises SchemaError when the graph fails on the batch, but on no row of it alone, or on more than ``MANY_ROWS``;
        and when it makes another number of rows.
        """
        failed: dict[int, str] = {}
        try:
            made = self._graph.apply(batch)
        except self._graph.failures as error:
            self._find_failures(batch, 0, graph_error(error), failed)
            if not failed:
                raise SchemaError(f"preprocessing_fn fails on a batch: {graph_error(error)}") from error
            batch = batch.filter(pa.array(np.isin(np.arange(batch.num_rows), list(failed), invert=True)))
            made = self._graph.apply(batch)
        if made.num_rows != batch.num_rows:
            raise SchemaError(
                f"preprocessing_fn made {made.num_rows} rows of {batch.num_rows}; each of its outputs must have one "
                "row for each row of the inputs"
            )
        return made, failed

    def _find_failures(self, batch: pa.RecordBatch, start: int, reason: str, failed: dict[int, str]) -> None:
        """Adds the rows of a batch that fails which fail alone, by halves; ``start``: the position of its first row."""
        if batch.num_rows == 1:
            failed[start] = f"preprocessing_fn fails on it: {reason}"
            if len(failed) > MANY_ROWS:
                raise SchemaError(f"preprocessing_fn fails on more than {MANY_ROWS} rows of a batch: {reason}")
            return
        half = batch.num_rows // 2
        for first, part in ((start, batch.slice(0, half)), (start + half, batch.slice(half))):
            try:
                self._graph.apply(part)
            except self._graph.failures as error:
                self._find_failures(part, first, graph_error(error), failed)


@functools.lru_cache(maxsize=4)
def _load_graph(transform_dir: str, schema: Schema) -> _Graph:
    return _Graph(transform_dir, schema)


class _Graph:
    def __init__(self, transform_dir: str, schema: Schema) -> None:
        tf = import_tensorflow()
        from tensorflow_transform import tf2_utils
        from tensorflow_transform.saved.saved_transform_io_v2 import SavedModelLoader

        # TensorFlow decodes its own message, which may quote bytes of the data.
        self.failures = (tf.errors.OpError, UnicodeDecodeError)
        self._loader = SavedModelLoader(os.path.join(transform_dir, "transform_fn"))
        outputs = self._loader.structured_outputs
        components = tf.nest.flatten(outputs, expand_composites=True)
        inputs = tf2_utils.get_structured_inputs_from_func_graph(components[0].graph)
        used = ancestors([tensor.op for tensor in components])
        specs = type_specs(schema.to_proto())
        needed = {
            name
            for name, tensor in inputs.items()
            if name in specs and any(t.op.name in used for t in tf.nest.flatten(tensor, expand_composites=True))
        }
        self._loader.finalize(needed, set(outputs))
        self._reader = TensorReader(schema.to_proto(), needed)
        self.writer = TensorWriter(outputs)

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return self.writer.write(self._loader.apply_transform_model(self._reader.read(batch)))
