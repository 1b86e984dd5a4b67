"""Permutations that depend on a seed alone, the same with every version of every library."""

from __future__ import annotations

import hashlib

import numpy as np


def permutation(size: int, *seed: str | int) -> np.ndarray:
    """A uniform permutation of ``range(size)`` (int64): the order of pseudo-random 64-bit keys, by index if equal."""
    return np.argsort(random_keys(size, *seed), kind="stable")


def random_keys(size: int, *seed: str | int) -> np.ndarray:
    """``size`` pseudo-random uint64: SplitMix64 (Steele, Lea, Flood 2014) from a state hashed from the seed's parts."""
    hashed = hashlib.sha256("\x1f".join(map(str, seed)).encode()).digest()
    state = np.uint64(int.from_bytes(hashed[:8], "little"))
    with np.errstate(over="ignore"):
        keys = state + np.arange(1, size + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(keys ^ (keys >> np.uint64(31)))
