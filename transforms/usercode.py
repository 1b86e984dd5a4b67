"""Functions of the user's: their file, what else it imports, and a hash of all that they say."""

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
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transforms.errors import ConfigError
from transforms.fingerprint import digest, hash_python, outline

if TYPE_CHECKING:
    from types import ModuleType

_loading = threading.RLock()


class UserFunction:
    """A function in a Python file; pickled as its place, and loaded again where it arrives."""

    def __init__(self, path: str, name: str) -> None:
        self.path = os.path.abspath(path)
        self.name = name

    def check(self, *, example: str) -> None:
        """Looks at the file without running it; it runs when the function is asked for.

        Raises ConfigError, which names the path, when it cannot be read or has no such function; ``example``: what to
        write instead.
        """
        if not _may_define(_parse(self.path), self.name):
            raise ConfigError(f"{self.path}: has no function {self.name}; define {example}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, self.name)

    @functools.cached_property
    def digest(self) -> str:
        """A hash of the file and of the project's modules that it imports.

        Comments and layout do not count.  Modules that are imported under a name made at run time, and files that the
        function reads, are not seen.
        """
        return digest({name: hash_python(path) for name, path in _project_modules(self.path).items()})

    def outline(self) -> dict[str, dict[str, list[str]]]:
        """``fingerprint.outline`` of the file (under ``""``) and of the project's modules that it imports, by name."""
        return {name: outline(path) for name, path in _project_modules(self.path).items()}

    @functools.cached_property
    def function(self) -> Callable[..., Any]:
        """Raises ConfigError with the user's line when the file cannot be imported."""
        function: Callable[..., Any] | None = getattr(_import(self.path), self.name, None)
        if not callable(function):
            raise ConfigError(f"{self.path}: {self.name} is not a function; define `def {self.name}(…):`")
        return function

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
    folder, name = os.path.dirname(path), f"usercode_{digest(path)}"
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
