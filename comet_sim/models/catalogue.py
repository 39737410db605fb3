"""Which models a name or a path stands for: published shapes, the shipped demo, a checkpoint folder."""

from __future__ import annotations

import difflib
import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from comet_sim.errors import InputError
from comet_sim.models.checkpoint import Checkpoint, load_checkpoint, load_config, load_metadata
from comet_sim.models.config import ModelConfig, Rope
from comet_sim.models.demo import DATA, DEMO_NAMES, demo_folder
from comet_sim.models.metadata import Metadata

__all__ = ["ResolvedModel", "list_models", "resolve_model"]


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """A model that can be run: "shapes" has dimensions only, the others have weights in `folder`."""

    kind: Literal["shapes", "demo", "checkpoint"]
    config: ModelConfig
    folder: Path | None

    @property
    def name(self) -> str:
        """The model's name: the catalogue's, or the checkpoint folder's."""
        return self.config.name

    def load(self) -> Checkpoint:
        """Load the weights; raises InputError for a model of which only the shapes are known."""
        if self.folder is None:
            raise InputError(
                f"model {self.name}: only its shapes are known, no weights; "
                f"accepted: {', '.join(DEMO_NAMES)} or a checkpoint folder"
            )
        return load_checkpoint(self.folder)

    def metadata(self) -> Metadata:
        """Read what is known beyond transformers' files, without the weights; nothing for a model of shapes."""
        return load_metadata(self.folder, self.config) if self.folder else Metadata()


def list_models() -> tuple[ResolvedModel, ...]:
    """Every model known by name: the shipped demo models, then the published shapes, by family and size."""
    demos = (ResolvedModel("demo", load_config(demo_folder(n)), demo_folder(n)) for n in DEMO_NAMES)
    return (*demos, *(ResolvedModel("shapes", config, None) for config in _published()))


def resolve_model(text: str) -> ResolvedModel:
    """Find the model a scenario or a command names.

    A known name wins over a folder of that name in the working directory ("./name" means the folder).
    Raises InputError with the nearest known names.
    """
    if text in DEMO_NAMES:
        return ResolvedModel("demo", load_config(demo_folder(text)), demo_folder(text))
    published = {config.name: config for config in _published()}
    if text in published:
        return ResolvedModel("shapes", published[text], None)
    folder = Path(text).expanduser()
    if text and folder.is_dir():
        return ResolvedModel("checkpoint", load_config(folder), folder)
    if os.sep in text or "/" in text:
        raise InputError(f"model {text!r}: no such folder")
    known = [*DEMO_NAMES, *published]
    near = difflib.get_close_matches(text.lower(), known, n=2, cutoff=0.5)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    raise InputError(f"model {text!r}: not known, accepted: {', '.join(known)} or a checkpoint folder{hint}")


def _published() -> tuple[ModelConfig, ...]:
    with (DATA / "catalogue.toml").open("rb") as stream:
        table = tomllib.load(stream)
    return tuple(
        _entry(name, table["architectures"][entry["architecture"]] | entry)
        for name, entry in table["models"].items()
    )


def _entry(name: str, entry: dict[str, Any]) -> ModelConfig:
    theta = entry.get("rope_theta")
    return ModelConfig(
        architecture=entry["architecture"],
        name=name,
        layers=entry["layers"],
        hidden=entry["hidden"],
        heads=entry["heads"],
        kv_heads=entry.get("kv_heads", entry["heads"]),
        head_dim=entry["hidden"] // entry["heads"],
        ffn=entry["ffn"],
        vocab=entry["vocab"],
        max_positions=entry["positions"],
        activation=entry["activation"],
        norm=entry["norm"],
        position_offset=entry["position_offset"],
        rope=None if theta is None else Rope(theta),
        gated=entry["gated"],
        attention_bias=entry["bias"],
        ffn_bias=entry["bias"],
        tied=entry["tied"],
        eos_id=entry["eos"],
    )
