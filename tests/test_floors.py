"""The house of docs/architecture.md: which module may import which."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("transforms", "runners", "pipeline")
LIMIT_LINES = 400


def floors() -> dict[str, dict[str, int]]:
    """The drawing in docs/architecture.md: package -> module -> floor."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    drawing = re.search(r"```\n(transforms/.*?)```", text, re.S)
    assert drawing is not None
    house: dict[str, dict[str, int]] = {}
    package = ""
    for line in drawing.group(1).splitlines():
        match = re.match(r"(\w+/)?\s+(?:floor (\d)\s+)?(.*)", line)
        assert match is not None, line
        package = (match.group(1) or package).rstrip("/") if match.group(1) else package
        floor = int(match.group(2) or 0)
        names = re.sub(r"\(.*?\)", "", match.group(3))
        house.setdefault(package, {}).update({name.strip(" /"): floor for name in names.split(",") if name.strip()})
    return house


HOUSE = floors()


def module_of(path: Path) -> tuple[str, str]:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return parts[0], parts[1] if len(parts) > 1 else "__init__"


def imports(path: Path) -> list[tuple[str, str]]:
    """(package, module) of what a file imports of ours, wherever in the file it does."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = [node.module] if "." in node.module else [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            package, _, rest = name.partition(".")
            if package in PACKAGES:
                found.append((package, rest.split(".")[0]))
    return found


FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_only_from_lower_floors(path: Path) -> None:
    package, module = module_of(path)
    if module == "__init__":
        assert not imports(path)
        return
    assert module in HOUSE[package], f"{package}/{module} is not in the drawing of docs/architecture.md"
    for other, name in imports(path):
        if (other, name) == (package, module):
            continue  # inside one folder
        if other == package:
            assert HOUSE[package][name] <= HOUSE[package][module], (
                f"{package}/{module} imports from a higher floor: {name}"
            )
            order = list(HOUSE[package])
            assert order.index(name) < order.index(module), f"{package}/{module} imports {name}, which stands after it"
        else:
            assert package == "pipeline", f"{package} may not import {other}"


def test_drawing_names_only_what_is_there() -> None:
    there = {module_of(path) for path in FILES}
    for package, modules in HOUSE.items():
        for module in modules:
            assert (package, module) in there or (ROOT / package / module).is_dir(), f"{package}/{module}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_stay_readable(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LIMIT_LINES


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_pickle_no_salted_hash(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id != "hash", "hash() differs from process to process"
        if isinstance(node, ast.Import):
            assert not {alias.name for alias in node.names} & {"pickle", "dill", "cloudpickle"}
