"""``recordmill-worker``: a Python worker as runners start it, in the environment that the command was installed into.

For ``environment: process``, and as ``--container_executable`` of a worker pool.  It takes what the container's own
program takes (Beam's ``boot``), asks the runner for the rest, and installs nothing: recordmill is here.
Source: https://github.com/apache/beam/blob/master/sdks/python/container/boot.go
"""

from __future__ import annotations

import argparse
import os
from typing import Any

import grpc
from apache_beam.portability.api import beam_provision_api_pb2, beam_provision_api_pb2_grpc, endpoints_pb2
from apache_beam.runners.worker import sdk_worker_main
from apache_beam.runners.worker.worker_id_interceptor import WorkerIdInterceptor
from google.protobuf import json_format, text_format

PROVISION_SECONDS = 60.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--id", required=True, help="of the worker")
    parser.add_argument("--provision_endpoint", help="where the rest can be asked for")
    parser.add_argument("--control_endpoint", help="where it is told what to do")
    parser.add_argument("--logging_endpoint", help="where its log goes")
    arguments, _ = parser.parse_known_args()
    if not (arguments.provision_endpoint or arguments.control_endpoint):
        parser.error("--provision_endpoint or --control_endpoint must be given")
    os.environ.update(environment(arguments))
    sdk_worker_main.main([])


def environment(arguments: argparse.Namespace) -> dict[str, str]:
    """The variables in which Beam's worker looks for what it needs."""
    info = _ask(arguments.provision_endpoint, arguments.id) if arguments.provision_endpoint else None
    found = {"WORKER_ID": arguments.id}
    for name in ("control", "logging", "status"):
        url = getattr(arguments, f"{name}_endpoint", None) or (
            getattr(info, f"{name}_endpoint").url if info is not None else ""
        )
        if url:
            address = endpoints_pb2.ApiServiceDescriptor(url=url)
            found[f"{name.upper()}_API_SERVICE_DESCRIPTOR"] = text_format.MessageToString(address)
    if info is not None:
        found["PIPELINE_OPTIONS"] = json_format.MessageToJson(info.pipeline_options)
        found["RUNNER_CAPABILITIES"] = " ".join(info.runner_capabilities)
    return found


def _ask(address: str, worker_id: str) -> Any:
    """The ProvisionInfo of the runner."""
    with grpc.insecure_channel(address) as channel:
        named = grpc.intercept_channel(channel, WorkerIdInterceptor(worker_id))
        stub = beam_provision_api_pb2_grpc.ProvisionServiceStub(named)
        request = beam_provision_api_pb2.GetProvisionInfoRequest()
        return stub.GetProvisionInfo(request, timeout=PROVISION_SECONDS, wait_for_ready=True).info


if __name__ == "__main__":
    main()
