"""The header of an exported route: what is needed to prepare an input, build the route and name the classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt, ValidationError

from alray import __version__
from alray.config.sections.spec import Spec
from alray.core.errors import CheckpointError
from alray.core.storage.json_file import first_fault
from alray.data.form import DataForm
from alray.inference.network import TrainedNetwork
from alray.models.network import Network

HEADER = "alray"
"""Key of the header, as JSON, in a file's metadata."""


class RouteHeader(DataForm):
    """One route of a trained network. `spec` holds the sections that build it, with one entry for each component."""

    format: Literal[1] = 1
    alray: str
    name: str
    step: int  # mini-batches of training
    depth: PositiveInt
    components: Annotated[int, Field(ge=1, le=100_000)]  # of the whole network
    spec: dict[str, Any]

    def whole_spec(self) -> Spec:
        """`spec` with the sections that a spec must have, and inference does not use. Raises ValueError."""
        spec = Spec.model_validate({**self.spec, "data": {"source": "digits"}, "run": {"steps": 1}})
        components = spec.num_components
        # An imported model is cut at the same points as a whole; the route has the first of its parts.
        fits = components == self.depth if spec.model.source is None else (components or self.depth) >= self.depth
        if not fits:
            raise ValueError(f"a route of depth {self.depth} has {self.depth} components, not {components}")
        return spec

    def network(self, load: Callable[[str], Any]) -> Network:
        """The blueprint of the network up to this depth. Raises SpecError.

        Args:
            load: turns a reference `python:package.module.Class` into that class.
        """
        return Network(
            self.whole_spec(),
            sample=self.sample,
            classes=len(self.classes),
            load=load,
            trained=True,
            components=self.components,
        )


def header_of(network: TrainedNetwork, depth: int) -> RouteHeader:
    """The header of the route of this depth."""
    spec = network.workload.spec.model_dump(mode="json", include={"name", "seed", "task", "method"})
    spec["model"] = network.workload.network.model_section(depth)
    messages = network.workload.spec.pipeline.messages
    if messages is not None:
        spec["pipeline"] = {"messages": messages.model_dump(mode="json")}
    return RouteHeader(
        alray=__version__,
        name=network.workload.spec.name,
        step=network.step,
        depth=depth,
        components=len(network.components),
        spec=spec,
        **dict(network.form),
    )


def parse_header(text: str, file: str) -> RouteHeader:
    """Parse the header of a file. Raises CheckpointError if it is damaged or of another format."""
    try:
        header = RouteHeader.model_validate_json(text)
        header.whole_spec()
    except ValueError as error:
        why = first_fault(error) if isinstance(error, ValidationError) else error
        raise CheckpointError(
            f"this is not a header that alray {__version__} can read: {why}",
            file=file,
            hint="export the run anew with `alray export`",
        ) from error
    return header
