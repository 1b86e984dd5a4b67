"""What is known not to work on a runner is said before anything is sent to it."""

from __future__ import annotations

import subprocess
import sys

from pipeline.config import Config
from runners import start
from runners.settings import RunnerError
from transforms.errors import ConfigError

IMPORT_SECONDS = 300

# What a worker does, without this shell's PYTHONPATH and current folder.
_IMPORT = """
import sys
from transforms.errors import ConfigError
from transforms.usercode import UserFunction
try:
    UserFunction(sys.argv[1], sys.argv[2]).function
except ConfigError as error:
    sys.exit(str(error))
"""


def check_runner(config: Config) -> None:
    """Raises ConfigError where the runner cannot be had, or its workers would not have the user's code."""
    try:
        start.check(config.runner.settings)
    except RunnerError as error:
        raise ConfigError(f"{config.path}: {error}") from error
    if config.runner.environment in ("external", "process", "docker"):
        check_imports(config)


def check_imports(config: Config) -> None:
    """Imports the user's modules in a Python of their own, which knows only what is installed and their folder."""
    functions = []
    if config.preprocess_path is not None:
        functions.append(("preprocess", config.preprocess_path, "preprocessing_fn"))
    if config.source_spec.prepare is not None:
        functions.append(("prepare", config.source_spec.prepare.path, config.source_spec.prepare.name))
    for key, path, name in functions:
        done = subprocess.run(
            [sys.executable, "-I", "-c", _IMPORT, path, name],
            cwd="/",
            capture_output=True,
            text=True,
            timeout=IMPORT_SECONDS,
            check=False,
        )
        if done.returncode:
            reason = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit status {done.returncode}"
            raise ConfigError(
                f"{config.path}: {key}: workers of runner {config.runner.name} would not have all that it needs "
                f"({reason}); put the modules beside {path}, or install them for the workers"
            )
