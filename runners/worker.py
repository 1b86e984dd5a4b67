"""``recordmill-worker``: a Python worker as runners start it, in the environment that the command was installed into.

For ``environment: process``, and as ``--container_executable`` of a worker pool.  It takes what the container's own
program takes (Beam's ``boot``), and installs nothing: recordmill is here.
Source: https://github.com/apache/beam/blob/master/sdks/python/container/boot.go
"""

from __future__ import annotations

import argparse

from apache_beam.runners.worker.sdk_worker import SdkHarness


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--id", required=True, help="of the worker")
    parser.add_argument("--control_endpoint", required=True, help="where it is told what to do")
    arguments, _ = parser.parse_known_args()
    SdkHarness(arguments.control_endpoint, worker_id=arguments.id).run()
