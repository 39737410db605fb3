"""Everything an object leads to, and whether a secret is among it."""

import gc
from types import FunctionType, ModuleType

import numpy as np

from comet_sim.mpc import ring


def reachable(root: object, apart: tuple[object, ...]) -> list[object]:
    """Everything reachable from an object, without going through classes, modules or the objects `apart`."""
    seen = {id(each) for each in apart}
    found, todo = [], [root]
    while todo:
        thing = todo.pop()
        if id(thing) in seen or isinstance(thing, type | ModuleType | FunctionType):
            continue
        seen.add(id(thing))
        found.append(thing)
        todo.extend(gc.get_referents(thing))
        if isinstance(thing, np.ndarray) and thing.base is not None:
            todo.append(thing.base)
    return found


def holds(things: list[object], secrets: np.ndarray) -> list[object]:
    """Those of the things that contain a secret: as a ring element, its bytes, or a number."""
    needles = [int(word).to_bytes(8, "little", signed=True) for word in secrets]
    numbers = {*secrets.tolist(), *ring.decode(secrets).tolist()}
    out: list[object] = []
    for thing in things:
        if isinstance(thing, np.ndarray):
            if np.isin(thing, [*numbers]).any():
                out.append(thing)
        elif isinstance(thing, bytes | bytearray):
            out.extend(thing for needle in needles if needle in thing)
        elif isinstance(thing, int | float) and thing in numbers:
            out.append(thing)
    return out
