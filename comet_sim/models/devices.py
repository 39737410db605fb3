"""Device profiles: what parties compute on, each figure with its source."""

from __future__ import annotations

from comet_sim.actors import DeviceProfile

__all__ = ["DEVICES"]

DEVICES: dict[str, DeviceProfile] = {
    profile.name: profile
    for profile in (
        DeviceProfile("none", 0, 0, 0, "compute takes no time: communication alone"),
        DeviceProfile(
            "cpu",
            4_000_000_000,
            10_000_000_000,
            5_000,
            "benchmarks/ring.py on a 2-core x86-64 cloud machine: about 4e9 ring multiply-adds a second by float64 "
            "limbs, 10 GB/s of memory traffic, 5 us a numpy call; rounded",
        ),
        DeviceProfile(
            "a100",
            1_600_000_000_000,
            1_555_000_000_000,
            5_000,
            "NVIDIA A100 40 GB data sheet: 19.5 TFLOP/s FP64 tensor cores, 1,555 GB/s; a ring multiply-add takes six "
            "FP64 multiply-adds by limbs (reconstruction); 5 us a kernel launch",
        ),
    )
}
"""Every device a scenario may name."""
