"""The reference of the config is what the code checks, and every config that the docs show is one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML
from typer.testing import CliRunner

from pipeline import reference
from pipeline.cli import app
from pipeline.config import Config
from pipeline.values import Model

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


def printed(*arguments: str) -> str:
    return CliRunner().invoke(app, ["reference", *arguments]).output


def test_the_docs_are_what_the_command_prints() -> None:
    assert (DOCS / "config.md").read_text(encoding="utf-8") == printed()
    assert (DOCS / "config.schema.json").read_text(encoding="utf-8") == printed("--json-schema")


def test_every_key_is_described() -> None:
    def check(model: type[Model]) -> None:
        for name, field in model.model_fields.items():
            assert field.description and field.description.endswith("."), name
            if isinstance(field.annotation, type) and issubclass(field.annotation, Model):
                check(field.annotation)

    check(Config)


def configs() -> list[tuple[str, Any]]:
    """Whole configs of the README, the docs and the examples."""
    found = []
    for path in [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]:
        for i, block in enumerate(re.findall(r"```yaml\n(.*?)```", path.read_text(encoding="utf-8"), re.S)):
            plain = YAML(typ="safe").load(block)
            if isinstance(plain, dict) and {"name", "source", "output"} <= plain.keys():
                found.append((f"{path.name} {i}", plain))
    for path in sorted(ROOT.glob("examples/*/*.yaml")):
        found.append((path.name, YAML(typ="safe").load(path)))
    return found


@pytest.mark.parametrize(("where", "plain"), configs(), ids=[where for where, _ in configs()])
def test_the_schema_takes_what_the_docs_show(where: str, plain: Any) -> None:
    jsonschema.validate(plain, reference.json_schema(), jsonschema.Draft202012Validator)


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ("name", 3),
        ("splitz", {"train": 1.0}),
        ("output", {"dir": "out", "level": 0}),
        ("output", {"dir": "out", "compression": "zstd"}),
        ("source", {"files": "a.csv"}),
        ("source", {"format": "csv", "files": [1]}),
        ("runner", {"workers": "many"}),
    ],
)
def test_the_schema_refuses_what_a_build_refuses(change: str, value: Any) -> None:
    plain = {"name": "t", "source": {"format": "csv", "files": ["a.csv"]}, "output": {"dir": "out"}}
    validator = jsonschema.Draft202012Validator(json.loads(json.dumps(reference.json_schema())))
    validator.check_schema(validator.schema)
    assert validator.is_valid(plain)
    assert not validator.is_valid(plain | {change: value})
