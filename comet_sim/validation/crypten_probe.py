"""Runs operations of real CrypTen between two processes and counts what it sends.

A program of its own: it runs in whatever Python has CrypTen, and imports nothing of comet-sim. It reads one JSON
document on stdin, {"cases": [{"op", "inputs": [...]}]}, and prints a JSON line a case: {"bytes", "rounds", "values"}.
"""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable
from typing import Any


def _import_crypten() -> tuple[Any, Any]:
    """Import CrypTen 0.4.1, which registers itself with a part of torch.onnx that newer versions of torch lack."""
    name = "torch.onnx._internal.registration"
    try:
        __import__(name)
    except ImportError:
        stand_in = types.ModuleType(name)
        stand_in.registry = None  # type: ignore[attr-defined]
        sys.modules[name] = stand_in
    import crypten
    import torch

    return crypten, torch


_OPS: dict[str, Callable[..., Any]] = {
    "reveal": lambda x: x.get_plain_text(),
    "multiply": lambda x, y: x.mul(y),
    "square": lambda x: x.square(),
    "matmul": lambda x, y: x.matmul(y),
    "less than zero": lambda x: x.lt(0),
    "equal": lambda x, y: x.eq(y),
    "sign": lambda x: x.sign(),
    "absolute": lambda x: x.abs(),
    "relu": lambda x: x.relu(),
    "hardtanh": lambda x: x.hardtanh(),
    "exp": lambda x: x.exp(),
    "log": lambda x: x.log(),
    "reciprocal": lambda x: x.reciprocal(),
    "divide": lambda x, y: x.div(y),
    "square root": lambda x: x.sqrt(),
    "inverse square root": lambda x: x.inv_sqrt(),
    "sigmoid": lambda x: x.sigmoid(),
    "tanh": lambda x: x.tanh(),
    "maximum": lambda x: x.max(dim=1)[0],
    "softmax": lambda x: x.softmax(dim=1),
    "log softmax": lambda x: x.log_softmax(dim=1),
}


def _run(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Run every case in this process, as one of the two parties."""
    crypten, torch = _import_crypten()
    from crypten import communicator

    torch.set_num_threads(1)
    crypten.cfg.communicator.verbose = True  # its counter counts only then
    party = communicator.get()
    found = []
    for case in cases:
        operands = [
            crypten.cryptensor(torch.tensor(values, dtype=torch.float64)) for values in case["inputs"]
        ]
        party.reset_communication_stats()
        result = _OPS[case["op"]](*operands)
        counted = party.get_communication_stats()
        # Its counter adds up what a party sends and what it receives.
        row = {"bytes": counted["bytes"] / 2, "rounds": counted["rounds"]}
        plain = result if torch.is_tensor(result) else result.get_plain_text()
        found.append({**row, "values": plain.tolist()})
    return found


def main() -> None:
    """Read the cases, run them, print what the first party counted."""
    document = json.load(sys.stdin)
    crypten, _ = _import_crypten()
    results = crypten.mpc.run_multiprocess(world_size=2)(_run)(document["cases"])
    if not results:
        raise SystemExit("a party ended early")
    for row in results[0]:
        print(json.dumps(row))  # noqa: T201 - its stdout is its result


if __name__ == "__main__":
    main()
