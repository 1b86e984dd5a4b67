"""The page of a version in headless Chromium: wide and narrow, bright and dark, and what axe says of it."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import axe_core_python
import numpy as np
import pytest

from pipeline.build import build
from pipeline.config import load
from pipeline.page import write_page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
AXE = (
    (Path(axe_core_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8").replace("</script", "<\\/script")
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (Debian: chromium)"),
]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the second of two versions, whose features moved, with bad rows and images."""
    from PIL import Image

    folder = tmp_path_factory.mktemp("page")
    rng = np.random.default_rng(1)
    for name in ("red", "blue"):
        Image.new("RGB", (300, 200), name).save(folder / f"{name}.png")
    config = folder / "c.yaml"
    config.write_text(
        "name: t\nsource: {format: csv, files: t.csv, load: {picture: image}}\n"
        "splits: {train: 0.8, eval: 0.2}\nmax_bad_rows: 10\noutput: {dir: out}\nredact: [secret]\n"
    )
    for shift in (0, 500):
        rows = [
            f"{n + shift},{x},{'red' if x < 1 else 'blue'}.png,hidden{n % 3}" for n, x in enumerate(rng.random(400) * 2)
        ]
        (folder / "t.csv").write_text("a_number,x,picture,secret\n" + "\n".join(rows) + "\n1,2\n")
        build(load(str(config)))
    return Path(write_page(str(folder / "out"), version=None, path=None))


def opened(page: Path, script: str, *, width: int = 1200, dark: bool = False) -> Any:
    """What the script resolves to on the page, in a window of the width (pixels)."""
    tail = f"""<script>{AXE}</script><script>
    (async () => ({script}))().then(found => {{ document.title = 'found:' + JSON.stringify(found) }})
    </script></body>"""
    copy = page.with_name(f"opened-{width}-{dark}.html")
    copy.write_text(page.read_text(encoding="utf-8").replace("</body>", tail), encoding="utf-8")
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},900"]
    if dark:
        command.append("--blink-settings=preferredColorScheme=0")
    command += ["--virtual-time-budget=20000", f"--user-data-dir={page.parent / 'chromium'}", "--dump-dom", str(copy)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found = re.search(r"<title>found:(.*?)</title>", done.stdout, re.S)
    assert found, done.stdout[:500]
    return json.loads(html.unescape(found[1]))


@pytest.mark.parametrize("dark", [False, True], ids=["bright", "dark"])
def test_axe_finds_no_fault(page: Path, dark: bool) -> None:
    script = "(await axe.run()).violations.map(v => [v.id, v.impact, v.nodes.length, v.nodes[0].html])"
    assert opened(page, script, dark=dark) == []


def test_axe_would_find_a_fault(page: Path) -> None:
    script = """(document.body.append(document.createElement('img')),
        (await axe.run()).violations.map(v => v.id))"""
    assert "image-alt" in opened(page, script)


def test_dark_is_dark(page: Path) -> None:
    script = "[getComputedStyle(document.body).backgroundColor, matchMedia('(prefers-color-scheme: dark)').matches]"
    assert opened(page, script) == ["rgb(255, 255, 255)", False]
    assert opened(page, script, dark=True) == ["rgb(13, 17, 23)", True]


def test_nothing_but_tables_is_wider_than_a_phone(page: Path) -> None:
    wide = "[document.documentElement.scrollWidth, innerWidth, document.querySelectorAll('section').length]"
    scroll, inner, sections = opened(page, wide, width=500)
    assert scroll <= inner and sections > 0


def test_nothing_is_fetched_and_pictures_are_drawn(page: Path) -> None:
    script = """[performance.getEntriesByType('resource').filter(r => !r.name.startsWith('data:')).length,
        [...document.images].map(i => [i.naturalWidth, i.naturalHeight])]"""
    fetched, pictures = opened(page, script)
    assert fetched == 0 and len(pictures) == 5 and all(size == [96, 64] for size in pictures)


def test_what_is_redacted_is_not_on_the_page(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "hidden" not in text.replace("--hide", "") and "its values are redacted" in text
