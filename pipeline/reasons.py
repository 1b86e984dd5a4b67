"""Why a build is not what the last one was, in words."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipeline.layout import Manifest
from transforms.schema import Feature, Schema

SHOWN = 3  # names in one reason
LONGEST = 80  # characters of an option's value


def reasons(before: Manifest, after: Manifest, *, schema_before: Schema, schema: Schema) -> list[str]:
    """What is different in what the two versions were made from; ``after`` need not be finished."""
    found = [
        *_sources(before, after),
        *schema_changes(schema_before, schema),
        *_code(before.code, after.code),
        *_analyzers(before, after),
        *_config(_flat(before.config), _flat(after.config)),
        *_software(before.software, after.software),
    ]
    return found or ["the format of recordmill's files is another one"]


def _analyzers(before: Manifest, after: Manifest) -> Iterator[str]:
    """Whose results are not what they were."""
    both = [name for name in after.analyzers if name in before.analyzers]
    # TFT names a result after its analyzer: scale_to_z_score/mean_and_var/temporary_analyzer_output/…
    changed = dict.fromkeys(
        name.partition("/temporary_analyzer_output")[0]
        for name in both
        if before.analyzers[name] != after.analyzers[name]
    )
    if changed:
        verb = "has another result" if len(changed) == 1 else "have other results"
        yield f"analysis: {_names(list(changed))} {verb}, so all partitions are encoded again"


def _sources(before: Manifest, after: Manifest) -> Iterator[str]:
    old = {source.path: source.fingerprint for source in before.sources}
    new = {source.path: source.fingerprint for source in after.sources}
    for what, paths in (
        ("new", [path for path in new if path not in old]),
        ("gone", [path for path in old if path not in new]),
        ("changed", [path for path in new if path in old and new[path] != old[path]]),
    ):
        if paths:
            yield f"source: {_names(paths)} {'is' if len(paths) == 1 else 'are'} {what}".replace(
                "is changed", "changed"
            )
    if list(old) != list(new) and set(old) == set(new):
        yield "source: the files come in another order"


def schema_changes(before: Schema, after: Schema) -> Iterator[str]:
    """The columns that differ, in words."""
    old = {feature.name: feature for feature in before.features}
    new = {feature.name: feature for feature in after.features}
    for name in new:
        if name not in old:
            yield f"schema: column `{name}` is new"
        elif new[name] != old[name]:
            yield f"schema: column `{name}` changed{_kinds(old[name], new[name])}"
    for name in old:
        if name not in new:
            yield f"schema: column `{name}` is gone"
    if before.digest != after.digest and old == new:
        yield "schema: the order of the columns, or the shape of the schema, changed"


def _kinds(old: Feature, new: Feature) -> str:
    return f" from {old.kind} to {new.kind}" if old.kind != new.kind else ""


def _code(before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for module in dict.fromkeys([*after, *before]):
        kind, _, name = module.partition("/")
        where = kind + (f", module {name}" if name else "")
        if module not in before or module not in after:
            yield f"{where}: is {'gone' if module in before else 'new'}"
            continue
        old, new = before[module], after[module]
        for part in dict.fromkeys([*new, *old]):
            called = f"`{part}`" if part else "a statement outside of functions"
            if part not in old or part not in new:
                yield f"{where}: {called} is {'gone' if part in old else 'new'}"
            elif list(old[part]) != list(new[part]):
                yield f"{where}: {'constant in ' if old[part][1] == new[part][1] else ''}{called} changed"


def _config(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    for key in dict.fromkeys([*after, *before]):
        if before.get(key) != after.get(key):
            yield f"{key}: {before.get(key, 'not given')} → {after.get(key, 'not given')}"


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Dotted keys and their values as JSON, shortened; without what says where things are, which changes no byte."""
    flat: dict[str, str] = {}
    for key, value in config.items():
        name = f"{prefix}{key}"
        if name in ("output.dir", "preprocess", "schema"):
            continue
        if isinstance(value, Mapping) and name not in ("splits", "output.shards"):
            flat |= _flat(value, f"{name}.")
        else:
            text = json.dumps(value, ensure_ascii=False)
            flat[name] = text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
    return flat


def _software(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    for name in after:
        if name in before and before[name] != after[name]:
            yield f"{name}: {before[name]} → {after[name]}"


def _names(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - SHOWN} more" if len(paths) > SHOWN else ""
    return f"{', '.join(paths[:SHOWN])}{more}"
