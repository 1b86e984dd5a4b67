"""The C kernels, called through ctypes, which releases the GIL for the length of a call.

Each ``*.c`` file here is one concern; the module that uses a kernel declares it once with ``kernel``.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

Pointer = ctypes.c_void_p
Int64 = ctypes.c_int64
UInt64 = ctypes.c_uint64
Int32 = ctypes.c_int32
UInt32 = ctypes.c_uint32


@functools.cache
def _library() -> ctypes.CDLL:
    path = Path(__file__).with_name("_kernels.so")
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise ImportError(
            f"recordmill's kernels are not built or do not fit this machine ({error}); "
            "run `pip install .` in the checkout, or install a wheel for this platform"
        ) from error


def kernel(name: str, argument_types: list[Any], result_type: Any = None) -> Callable[..., Any]:
    """The C function of that name; the library is loaded at the first call."""

    @functools.cache
    def bound() -> Any:
        function = getattr(_library(), name)
        function.argtypes = argument_types
        function.restype = result_type
        return function

    def call(*arguments: Any) -> Any:
        return bound()(*arguments)

    call.__name__ = call.__qualname__ = name
    return call
