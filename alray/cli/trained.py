"""`alray evaluate`, `alray predict` and `alray export`: the use of a trained network."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from alray.cli.options import AllowCode, BestWeights, DataLocations, Depth, Json, RunDir, Step
from alray.cli.terminal import Terminal, shown, terminal
from alray.core.errors import RequestError
from alray.core.storage.location import location_of

if TYPE_CHECKING:
    from alray.inference.export import Exported


def evaluate(
    run_dir: RunDir,
    *,
    depth: Annotated[
        int | None,
        typer.Option(
            metavar="L",
            help="The depth of the route to evaluate; 1 is the first component alone.",
            show_default="all",
        ),
    ] = None,
    best: BestWeights = False,
    step: Step = None,
    data: DataLocations = None,
    allow_code: AllowCode = False,
    json: Json = False,
) -> None:
    """Measure the accuracy or the task's metric of a trained network.

    Takes a checkpoint of a run and measures each route of inference on the validation and test sets.
    """
    folder = location_of(run_dir)
    with terminal(as_json=json) as streams:
        from alray.inference.chosen_weights import RequestedWeights
        from alray.inference.early import require_request

        requested = RequestedWeights(best, step)
        require_request(folder, requested, depth)
        from alray.core.metric import ACCURACY
        from alray.inference.network import TrainedNetwork
        from alray.inference.requests import evaluate
        from alray.report.table import Table
        from alray.report.text import score

        network = TrainedNetwork(folder, allow_code=allow_code, requested=requested, data=data or ())
        found = evaluate(network, depth)
        weights = found.weights
        if json:
            per_depth = [entry.model_dump(mode="json") for entry in found.scores]
            streams.answer(
                {
                    "step": weights.step,
                    "weights": weights.as_json(),
                    "metric": found.metric.name,
                    f"{found.metric.name}_per_depth": per_depth,
                }
            )
            return
        streams.say(str(weights))
        rows = tuple((str(entry.depth), score(entry.validation), score(entry.test)) for entry in found.scores)
        streams.put(streams.page.table(Table(("depth", "validation", "test"), rows)))
        if found.metric != ACCURACY:
            streams.say(f"validation and test are the {found.metric.title}; the {found.metric.direction} is the best")
        for line in found.notes:
            streams.say(line)


def predict(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="A run folder or its URL, or a file that `alray export --format safetensors` wrote.",
        ),
    ],
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="INPUT",
            help="Image files, or tables of which each row is predicted. For a network that reads text: files with one "
            "document each, or texts in quotes. An input that is not a file is taken as text, except a single word "
            "that ends in .txt.",
        ),
    ] = None,
    *,
    prompt: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="A text that a language model continues, in place of inputs."),
    ] = None,
    tokens: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many tokens it is continued by.")] = 200,
    temperature: Annotated[
        float, typer.Option(min=0.0, help="The spread of the tokens that are drawn; 0: always the most probable one.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="The seed of the tokens that are drawn.")] = 0,
    depth: Depth = None,
    best: BestWeights = False,
    step: Step = None,
    data: DataLocations = None,
    allow_code: AllowCode = False,
    json: Json = False,
) -> None:
    """Predict pictures, rows of tables or texts with a trained network, or continue a text.

    Uses a checkpoint of a run, or an exported route.
    """
    source = location_of(run)
    with terminal(as_json=json) as streams:
        if bool(inputs) == (prompt is not None):
            raise RequestError(
                "there is nothing to predict" if not inputs else "inputs and a prompt are given",
                key="--prompt",
                hint="give inputs, or for a language model --prompt with a text to continue",
            )
        from alray.inference.chosen_weights import RequestedWeights
        from alray.inference.early import require_request

        requested = RequestedWeights(best, step)
        if not (isinstance(source, Path) and source.is_file()):
            require_request(source, requested, depth, inputs=inputs or ())
        from alray.inference.requests import open_network

        network = open_network(source, allow_code=allow_code, requested=requested, data=data or ())
        if prompt is not None:
            from alray.inference.generation import generate

            made = generate(network, prompt, tokens=tokens, temperature=temperature, depth=depth, seed=seed)
            if json:
                streams.answer({"weights": network.weights.as_json(), "generated": asdict(made)})
                return
            streams.tell(str(network.weights))
            streams.put(made.prompt + made.text)
            return
        assert inputs is not None
        predictions = network.predict(inputs, depth)
        if json:
            streams.answer(
                {"weights": network.weights.as_json(), "predictions": [asdict(each) for each in predictions]}
            )
            return
        streams.tell(str(network.weights))
        for prediction in predictions:
            streams.say(f"{prediction.input}: {prediction}")


def export(
    run_dir: RunDir,
    *,
    format: Annotated[
        str,
        typer.Option(
            metavar="FORMAT",
            help="safetensors: weights for `alray predict`; torch_export: a graph for torch.export.load; onnx: a graph "
            "for ONNX runtimes; or the weights of a whole model under its names: state_dict, a file for torch.load; "
            "pretrained, a folder that transformers loads.",
        ),
    ],
    depth: Depth = None,
    output: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="The file or folder to write.",
            show_default="export/route-<depth> in the run folder, with the format's ending",
        ),
    ] = None,
    best: BestWeights = False,
    step: Step = None,
    data: DataLocations = None,
    allow_code: AllowCode = False,
    json: Json = False,
) -> None:
    """Write the inference route of a trained network.

    Takes a checkpoint of a run. What is written holds what inference needs, in float32, and nothing that only training
    needs. The data of the run need not be there.
    """
    folder = location_of(run_dir)
    with terminal(as_json=json) as streams:
        from alray.inference.chosen_weights import RequestedWeights
        from alray.inference.early import format_of, require_request

        chosen, requested = format_of(format), RequestedWeights(best, step)
        require_request(folder, requested, depth)
        from alray.inference.export import export_route
        from alray.inference.network import TrainedNetwork
        from alray.report.text import size

        network = TrainedNetwork(
            folder,
            allow_code=allow_code,
            requested=requested,
            data=data or (),
            compiled=False,
            without_data=True,
            on_cpu=True,
        )
        written = export_route(network, depth, chosen, None if output is None else location_of(output))
        if json:
            streams.answer({**asdict(written), "weights": network.weights.as_json()})
            return
        inputs = ", ".join(f"{name} [{', '.join(map(str, sizes))}]" for name, sizes in written.inputs.items())
        streams.say(shown(written.file))
        streams.say(f"route of depth {written.depth}: {written.parameters:,} parameters, {size(written.bytes)}")
        streams.say(str(network.weights))
        streams.say(f"takes {inputs}")
        if written.class_alone is not None:
            _say_what_the_class_is(streams, written)


def _say_what_the_class_is(streams: Terminal, written: Exported) -> None:
    """Whether the class of a state dict predicts by itself, and which readouts are in the file."""
    if written.class_alone:
        streams.say("the class with these weights predicts as the route does: both gave the same scores")
    else:
        streams.say(
            "warning: the class alone is no trained classifier. Its scores are not those of the route. "
            + ("Use the readouts in the file" if written.readouts else "Export another format, such as torch_export")
        )
    for each in written.readouts:
        streams.say(f"readout of depth {each.depth}: {each.names}*, which reads {each.reads or 'no module'}")
