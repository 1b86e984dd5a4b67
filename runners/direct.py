"""The local runner: Beam's portable runner in this process, named so that Beam does not pick another one.

Beam's ``DirectRunner`` tries Prism first and downloads its binary; ``FnApiRunner`` is what it falls back to.
"""

from __future__ import annotations

import os

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_provision_api_pb2
from apache_beam.runners.portability.fn_api_runner.fn_runner import ExtendedProvisionInfo, FnApiRunner
from apache_beam.runners.portability.portable_runner import JobServiceHandle


def pipeline(*, workers: int, processes: bool) -> beam.Pipeline:
    """An empty pipeline that runs in this process, or on ``workers`` threads or processes.

    Threads are for steps that hold no GIL. Processes take seconds to start, and pay where Python or TensorFlow does
    the work.
    """
    mode = "in_memory" if workers == 1 else "multi_processing" if processes else "multi_threading"
    if mode == "multi_processing":  # each process has a core; TensorFlow would start threads for all of them in each
        os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
        os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")
    options = PipelineOptions([f"--direct_running_mode={mode}", f"--direct_num_workers={workers}"])
    # Worker processes get the options only if they are shipped with what the runner provides.
    encoded = JobServiceHandle.encode_pipeline_options(options.get_all_options())
    runner = FnApiRunner(
        provision_info=ExtendedProvisionInfo(beam_provision_api_pb2.ProvisionInfo(pipeline_options=encoded))
    )
    return beam.Pipeline(runner=runner, options=options)
