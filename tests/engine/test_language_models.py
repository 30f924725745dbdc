"""The next token: plain PyTorch gives the same weights, and every partition, schedule and resume the same bits."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

import alray
from alray.cli.main import execute
from alray.config.loading.load import load_spec
from alray.config.user_code import UserCode
from alray.core.errors import DataError, RequestError, SpecError
from alray.data.batches import EvaluationBatches, TrainBatches
from alray.data.form import TokenForm
from alray.data.tokens import make_tokens
from alray.inference.export import export_route
from alray.inference.exported import ExportedRoute
from alray.inference.generation import generate
from alray.inference.network import TrainedNetwork
from alray.models.task import make_task
from alray.orchestrate import Finished
from alray.parts.tasks.next_token.task import END
from alray.runtime.planner.planning import Planner
from alray.runtime.workload import Workload

from ..pairwise import first_alone
from .conftest import Workshop
from .process_graph import in_processes
from .test_same_bits import same

SPEC = """
name: gpt
seed: 3
data: {source: text, folder: texts, context: 8, batch_size: 6, test_fraction: 0.2, validation_fraction: 0.2}
task: {kind: next_token}
model:
  components:
    - {block: transformer, causal: true, dim: 8, heads: 2, feedforward: 16, repeat: 4}
method: {kind: backpropagation}
optimizer: {kind: sgd, lr: 0.2, momentum: 0.9}
pipeline: {costs: [&cost {forward_s: 1e-3, backward_s: 1e-3, update_s: 1e-3}, *cost, *cost, *cost]}
run: {steps: 20, evaluate_every: 10 steps, checkpoint: {every: 5 steps, keep: 50}}
"""
METHODS = {
    "bp": ("method={kind: backpropagation}",),
    "dgl": ("method={kind: decoupled_greedy}",),
    "al": ("method={kind: associated_learning, label_dim: 5}",),
    "solo": ("method={kind: solo, copy_every: 3, heads: 2}",),
}
LR, MOMENTUM, HEADS, WIDTH, LAYERS = 0.2, 0.9, 2, 8, 4


def workshop_in(folder: Path) -> Workshop:
    """Ten documents of words in random order."""
    workshop = Workshop(folder, SPEC)
    (folder / "texts").mkdir()
    drawn = random.Random(0)
    for number in range(10):
        words = drawn.choices(["def", "return", "self", "é", "(x)", "for", "in"], k=30)
        (folder / "texts" / f"{number}.txt").write_text(" ".join(words), encoding="utf-8")
    return workshop


@pytest.fixture
def gpt(tmp_path: Path) -> Workshop:
    return workshop_in(tmp_path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gpt")


@pytest.fixture(scope="module")
def whole(folder: Path) -> dict[str, Finished]:
    """Each method on one stage."""
    workshop = workshop_in(folder)
    return {
        name: workshop.run(*method, "pipeline.stages=1", "pipeline.schedule=auto", name=name)
        for name, method in METHODS.items()
    }


# --- The same, in plain PyTorch ---


class PlainNorm(nn.Module):
    """RMSNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * x / ((x**2).mean(2, keepdim=True) + 1e-5).sqrt()


class PlainLayer(nn.Module):
    """A layer of GPT-2; those of SOLO have other norms and are wider."""

    def __init__(self, norm: type[nn.Module] | None = None, hidden: int = 16) -> None:
        super().__init__()
        self.attention_norm, self.feedforward_norm = (norm() if norm else nn.LayerNorm(WIDTH) for _ in range(2))
        self.mix, self.output = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, hidden), nn.Linear(hidden, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            torch.stack(part.chunk(HEADS, 2), 1) for part in self.mix(self.attention_norm(x)).chunk(3, 2)
        )
        scores = query @ key.transpose(2, 3) / math.sqrt(WIDTH / HEADS)
        ahead = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        mixed = torch.softmax(scores.masked_fill(ahead, -math.inf), 3) @ value
        x = x + self.output(torch.cat(mixed.unbind(1), 2))
        return x + self.down(functional.gelu(self.up(self.feedforward_norm(x))))

    def ordered(self) -> list[nn.Parameter]:
        """Its parameters, in the order of those of a layer of alray."""
        parts = [self.attention_norm, self.feedforward_norm, self.mix, self.output, self.up, self.down]
        return [value for part in parts for value in part.parameters()]


class PlainGpt(nn.Module):
    """Tokens and positions, and layers of GPT-2."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(256, WIDTH)
        self.positions = nn.Parameter(torch.zeros(8, WIDTH))
        self.layers = nn.ModuleList(PlainLayer() for _ in range(LAYERS))

    def run(self, index: int, x: torch.Tensor) -> torch.Tensor:
        """Layer `index`, the first with the vectors of tokens."""
        if index == 0:
            x = self.tokens(x) + self.positions
        return self.layers[index](x)

    def of_layer(self, index: int) -> list[nn.Parameter]:
        """Its parameters, in the order of those of component `index` of alray."""
        own = self.layers[index].ordered()
        return [self.positions, self.tokens.weight, *own] if index == 0 else own


def readout(width: int = 256) -> nn.Sequential:
    return nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, width, bias=False))


def cross_entropy(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The mean over samples and positions of log(sum exp scores) - score of the label."""
    of_label = scores.gather(2, labels.unsqueeze(2)).squeeze(2)
    return (scores.logsumexp(2) - of_label).mean()


class Plain:
    """Four layers with what a method adds to each, beginning with the weights of alray's components."""

    def __init__(self, workload: Workload) -> None:
        self.network = PlainGpt()
        self.parts: list[nn.ModuleDict] = [self.added(index) for index in range(LAYERS)]
        for index in range(LAYERS):
            given = workload.network.component(index, "cpu").weights()
            for mine, value in zip(self.weights(index), given.values(), strict=True):
                mine.data.copy_(value)
        parameters = [value for index in range(LAYERS) for value in self.weights(index)]
        self.optimizer = torch.optim.SGD(parameters, lr=LR, momentum=MOMENTUM)

    def weights(self, index: int) -> list[nn.Parameter]:
        return [*self.network.of_layer(index), *self.parts[index].parameters()]

    def added(self, index: int) -> nn.ModuleDict:
        return nn.ModuleDict({"head": readout()})

    def step(self, samples: torch.Tensor, labels: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        self.loss(samples, labels).backward()
        self.optimizer.step()

    def loss(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """That of decoupled greedy learning."""
        total = torch.zeros(())
        for index in range(LAYERS):
            x = self.network.run(index, x)
            total = total + cross_entropy(self.parts[index]["head"](x), labels)
            x = x.detach()
        return total


class PlainBackpropagation(Plain):
    def added(self, index: int) -> nn.ModuleDict:
        return nn.ModuleDict({"head": readout()} if index == LAYERS - 1 else {})

    def loss(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        for index in range(LAYERS):
            x = self.network.run(index, x)
        return cross_entropy(self.parts[-1]["head"](x), labels)


class PlainAssociated(Plain):
    """Bridges b, label encoders g and label decoders h of each position; g_1 is an embedding of tokens."""

    def added(self, index: int) -> nn.ModuleDict:
        return nn.ModuleDict(
            {
                "b": nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 5)),
                "g": nn.Embedding(256, 5) if index == 0 else nn.Linear(5, 5),
                "h": nn.Linear(5, 256 if index == 0 else 5),
            }
        )

    def loss(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        total, t = torch.zeros(()), labels
        for index, part in enumerate(self.parts):
            x = self.network.run(index, x)
            code = torch.tanh(part["g"](t))
            back = part["h"](code)
            own = cross_entropy(back, t) if index == 0 else ((back - t) ** 2).mean()
            total = total + own + ((torch.tanh(part["b"](x)) - code.detach()) ** 2).mean()
            x, t = x.detach(), code.detach()
        return total


class PlainSolo(Plain):
    """Every three mini-batches all components but the last read with the readout that it had three before."""

    def __init__(self, workload: Workload) -> None:
        super().__init__(workload)
        self.readouts = [self.parts[-1]["head"][1].weight.detach().clone()]  # after each mini-batch

    def added(self, index: int) -> nn.ModuleDict:
        if index == LAYERS - 1:
            return nn.ModuleDict({"head": readout()})
        part = nn.ModuleDict(
            {"lower": PlainLayer(PlainNorm, 32), "upper": PlainLayer(PlainNorm, 32), "norm": PlainNorm()}
        )
        part.tau = nn.Parameter(torch.zeros(()))
        part.copy, part.latest = (nn.Parameter(torch.zeros(256, WIDTH), requires_grad=False) for _ in range(2))
        return part

    def weights(self, index: int) -> list[nn.Parameter]:
        part, own = self.parts[index], self.network.of_layer(index)
        if index == LAYERS - 1:
            return [*own, *part.parameters()]
        phi = [*part["lower"].ordered(), *part["upper"].ordered(), *part["norm"].parameters()]
        return [part.latest, *own, part.tau, part.copy, *phi]

    def step(self, samples: torch.Tensor, labels: torch.Tensor) -> None:
        super().step(samples, labels)
        self.readouts.append(self.parts[-1]["head"][1].weight.detach().clone())
        periods = (len(self.readouts) - 1) // 3
        for part in self.parts[:-1]:
            part.copy.copy_(self.readouts[max(0, periods - 1) * 3])
            part.latest.copy_(self.readouts[periods * 3])

    def loss(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        total, period = torch.zeros(()), (len(self.readouts) - 1) // 3
        of_others = self.readouts[max(0, period - 1) * 3]
        for index, part in enumerate(self.parts):
            x = self.network.run(index, x)
            if index < LAYERS - 1:
                scores = part.tau * (part["norm"](part["upper"](part["lower"](x))) @ of_others.T)
            else:
                scores = part["head"](x)
            total = total + cross_entropy(scores, labels)
            x = x.detach()
        return total


PLAIN = {"bp": PlainBackpropagation, "dgl": Plain, "al": PlainAssociated, "solo": PlainSolo}


@pytest.mark.few
@pytest.mark.parametrize("method", METHODS)
def test_plain_pytorch_gives_the_same_weights(folder, whole, method) -> None:
    spec = load_spec(folder / "tiny.yaml", METHODS[method]).spec
    workload = Workload.open(spec, UserCode(folder))
    plain = PLAIN[method](workload)
    began = [value.detach().clone() for index in range(LAYERS) for value in plain.weights(index)]
    with TrainBatches(workload.data, seed=spec.seed, start_step=0, end_step=20, workers=0) as batches:
        for batch in batches:
            plain.step(batch.samples, batch.labels)
    trained = TrainedNetwork(folder / method, allow_code=False)
    assert trained.step == 20
    for index, component in enumerate(trained.components):
        for mine, found in zip(plain.weights(index), component.weights().values(), strict=True):
            torch.testing.assert_close(found, mine.detach(), rtol=1e-5, atol=1e-5)
    ended = [value for index in range(LAYERS) for value in plain.weights(index)]
    assert max(float((a - b).detach().abs().max()) for a, b in zip(began, ended, strict=True)) > 0.05


TIED = (
    "method={kind: backpropagation, tied: true}",
    "model.components=[{block: transformer, causal: true, dim: 8, heads: 2, feedforward: 16, layers: 4}]",
    "pipeline={costs: [{forward_s: 1e-3, backward_s: 1e-3, update_s: 1e-3}]}",
)


@pytest.mark.full
def test_a_tied_readout_is_plain_pytorch_with_one_matrix(gpt) -> None:
    gpt.run(*TIED)
    spec = load_spec(gpt.spec, TIED).spec
    workload = Workload.open(spec, UserCode(gpt.folder))
    plain, norm = PlainGpt(), nn.LayerNorm(WIDTH)
    layers = [value for layer in plain.layers for value in layer.ordered()]
    weights = [plain.positions, plain.tokens.weight, *layers, *norm.parameters()]
    for mine, value in zip(weights, workload.network.component(0, "cpu").weights().values(), strict=True):
        mine.data.copy_(value)
    optimizer = torch.optim.SGD(weights, lr=LR, momentum=MOMENTUM)
    with TrainBatches(workload.data, seed=spec.seed, start_step=0, end_step=20, workers=0) as batches:
        for batch in batches:
            x = batch.samples
            for index in range(LAYERS):
                x = plain.run(index, x)
            optimizer.zero_grad()
            cross_entropy(norm(x) @ plain.tokens.weight.T, batch.labels).backward()
            optimizer.step()
    trained = TrainedNetwork(gpt.folder / "run", allow_code=False)
    for mine, found in zip(weights, trained.components[0].weights().values(), strict=True):
        torch.testing.assert_close(found, mine.detach(), rtol=1e-5, atol=1e-5)
    asked = {"tokens": 12, "temperature": 0.9, "depth": None, "seed": 3}
    export_route(trained, None, "safetensors", gpt.folder / "tied.safetensors")
    route = ExportedRoute(gpt.folder / "tied.safetensors", allow_code=False)
    assert generate(route, "def ", **asked).text == generate(trained, "def ", **asked).text


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (METHODS["bp"][0][:-1] + ", tied: true}", "the last component has no vectors of tokens"),
        ("method.head.hidden=7", "a tied readout has no further layers"),
        ("task=classification", "the task classification has no tokens"),
    ],
)
def test_what_cannot_be_tied_is_refused(gpt, override, message) -> None:
    with pytest.raises(SpecError, match=message):
        gpt.run(*(TIED if "kind" not in override else ()), override)


# --- The same bits everywhere ---


@pytest.mark.parametrize("method", ["dgl", "al", "solo"])
@pytest.mark.parametrize(
    ("partition", "schedule"),
    [
        ("[1, 1, 1, 1]", "streamed"),
        pytest.param("[2, 2]", "streamed", marks=pytest.mark.full),
        pytest.param("[1, 3]", "sequential", marks=pytest.mark.full),
        pytest.param("[1, 1, 1, 1]", "sequential", marks=pytest.mark.full),
    ],
)
def test_bits_do_not_depend_on_the_partition(gpt, whole, method, partition, schedule) -> None:
    stages = partition.count(",") + 1
    keys = (f"pipeline.stages={stages}", f"pipeline.partition={partition}", f"pipeline.schedule={schedule}")
    same(gpt.run(*METHODS[method], *keys), whole[method])


@pytest.mark.full
@pytest.mark.parametrize("method", first_alone(["solo", "dgl", "al"]))
def test_a_resume_on_other_stages_ends_in_the_same_bits(gpt, whole, method) -> None:
    gpt.run(*METHODS[method], "run.steps=7", "pipeline.stages=4")
    same(gpt.resume("run.steps=20", "pipeline.stages=2"), whole[method])


def test_backpropagation_ends_in_the_same_bits_after_a_resume(gpt, whole) -> None:
    gpt.run(*METHODS["bp"], "run.steps=7", "pipeline.stages=1")
    same(gpt.resume("run.steps=20"), whole["bp"])


ALWAYS = (*METHODS["solo"], "method.copy_every=1")
"""A new copy after every mini-batch."""


@pytest.fixture(scope="module")
def copied_always(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """On one stage."""
    return workshop_in(tmp_path_factory.mktemp("always")).run(*ALWAYS, "pipeline.stages=1")


@pytest.mark.full
def test_stages_may_wait_for_every_copy(gpt, server, copied_always) -> None:
    same(gpt.run(*ALWAYS, "pipeline.stages=4"), copied_always)
    same(gpt.run(*ALWAYS, "pipeline.stages=2", "pipeline.virtual_stages=2", name="turns"), copied_always)
    for nodes in ((), ("one", "one", "other", "other")):
        with in_processes(server, nodes):
            run = gpt.run(*ALWAYS, "pipeline.stages=4", inline=False, name=f"processes on {len(set(nodes))} nodes")
            same(run, copied_always)


@pytest.mark.full
def test_replicas_of_stages_copy_the_same(gpt, processes) -> None:
    keys = (*METHODS["solo"], "replicas.count=2", "run.steps=9")
    alone = gpt.run(*keys, "pipeline.stages=1")
    same(gpt.run(*keys, "pipeline.stages=2", inline=False, name="processes"), alone)


@pytest.mark.full
@pytest.mark.parametrize("steps", first_alone([7, 6, 8]))
def test_a_checkpoint_has_the_copy_that_is_under_way(gpt, processes, whole, steps) -> None:
    """A copy is made after 6 mini-batches."""
    gpt.run(*METHODS["solo"], f"run.steps={steps}", "pipeline.stages=4", inline=False)
    same(gpt.resume("run.steps=20", "pipeline.stages=2"), whole["solo"])


# --- Metrics ---


@pytest.mark.few
@pytest.mark.parametrize("metric", ["nats_per_token", "perplexity", "bits_per_byte", "top_1"])
def test_metrics_are_those_of_all_tokens(folder, whole, metric) -> None:
    trained = TrainedNetwork(folder / "dgl", allow_code=False)
    data = trained.workload.data
    batches = list(EvaluationBatches(data, "test"))
    assert len(batches) > 1
    labels = torch.cat([batch.labels for batch in batches])
    assert (labels == END).any()
    task = load_spec(folder / "tiny.yaml", [f"task.metric={metric}"]).spec.task

    for place in range(len(trained.depths)):
        learning = make_task(task, 256, (8,))
        tally = learning.tally()
        parts = []
        for number, batch in enumerate(batches):
            with torch.no_grad():
                parts.append(trained.scores(batch, number)[place])
            tally.take(learning.measured(parts[-1], batch.labels), batch.labels)
        scores = torch.cat(parts).double()
        nats = float(cross_entropy(scores, labels))
        wanted = {
            "nats_per_token": nats,
            "perplexity": math.exp(nats),
            "bits_per_byte": nats * labels.numel() / int((labels != END).sum()) / math.log(2),
            "top_1": float((scores.argmax(2) == labels).double().mean()),
        }[metric]
        assert tally.value() == pytest.approx(wanted, rel=1e-6)


def test_every_depth_has_learnt(whole) -> None:
    for method in ("dgl", "al", "solo"):
        found = whole[method].summary.scores_per_depth
        assert [each.depth for each in found] == [1, 2, 3, 4]
        assert all(each.test is not None and each.test < math.log(256) for each in found)


# --- Generation ---


def test_a_text_is_continued_by_the_most_probable_tokens(folder, whole) -> None:
    """By hand: the route's scores of the last eight bytes, again and again; at each depth another text."""
    trained = TrainedNetwork(folder / "dgl", allow_code=False)
    for depth in (1, 4):
        text = list(b"return")
        for _ in range(6):
            scores = torch.tensor(text[-8:]).unsqueeze(0)
            with torch.no_grad():
                for component in trained.components[:depth]:
                    scores = component.f.body(scores)
                text.append(int(trained.components[depth - 1].head(scores)[0, -1].argmax()))
        made = generate(trained, "return", tokens=6, temperature=0.0, depth=depth, seed=0)
        assert (made.text, made.tokens, made.depth) == (bytes(text[6:]).decode("utf-8", "replace"), 6, depth)


def test_the_seed_decides_what_is_drawn(folder, whole) -> None:
    trained = TrainedNetwork(folder / "al", allow_code=False)
    texts = [
        generate(trained, "", tokens=20, temperature=1.5, depth=None, seed=seed).text.encode() for seed in (0, 0, 1)
    ]
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tokens", 0),
        ("tokens", -3),
        ("temperature", -1.0),
        ("temperature", math.nan),
        ("temperature", math.inf),
    ],
)
def test_what_is_out_of_bounds_is_refused(folder, whole, key, value) -> None:
    asked = {"tokens": 3, "temperature": 1.0, "depth": None, "seed": 0} | {key: value}
    with pytest.raises(RequestError, match=f"^--{key}: this is {value}"):
        generate(TrainedNetwork(folder / "dgl", allow_code=False), "re", **asked)


def test_a_tiny_temperature_takes_the_most_probable_token(folder, whole) -> None:
    trained = TrainedNetwork(folder / "dgl", allow_code=False)
    coldest, cold = (
        generate(trained, "re", tokens=8, temperature=each, depth=None, seed=0).text for each in (0.0, 1e-320)
    )
    assert cold == coldest


def test_the_command_continues_a_text(folder, whole, capsys) -> None:
    assert execute(["predict", str(folder / "dgl"), "--prompt", "def ", "--tokens", "5", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)["generated"]
    assert (answer["prompt"], answer["tokens"], answer["depth"]) == ("def ", 5, 4)
    assert alray.Run(folder / "dgl").generate("def ", tokens=5).text == answer["text"]
    assert execute(["predict", str(folder / "dgl"), "an input", "--prompt", "def "]) == 2


def test_a_prediction_is_the_next_token(folder, whole) -> None:
    trained = TrainedNetwork(folder / "bp", allow_code=False)
    (prediction,) = trained.predict(["retur"], None)
    made = generate(trained, "retur", tokens=1, temperature=0.0, depth=None, seed=0)
    assert prediction.token == made.text and 0 < prediction.score <= 1


@pytest.mark.few
@pytest.mark.parametrize("method", ["dgl", "al", "solo"])
def test_an_exported_route_writes_the_same_text(folder, whole, capsys, method) -> None:
    trained = TrainedNetwork(folder / method, allow_code=False)
    file = folder / f"{method}.safetensors"
    assert export_route(trained, 2, "safetensors", file).inputs == {"samples": ["batch", "T"]}
    route = ExportedRoute(file, allow_code=False)
    asked = {"tokens": 12, "temperature": 0.9, "seed": 3}
    made = generate(route, "def ", depth=None, **asked)
    assert made.text == generate(trained, "def ", depth=2, **asked).text
    assert str(route.predict(["retur"], None)) == str(trained.predict(["retur"], 2))
    assert execute(["predict", str(file), "--prompt", "def ", "--tokens", "5"]) == 0
    assert capsys.readouterr().out.startswith("def ")
    with pytest.raises(RequestError, match="only the route of depth 2"):
        generate(route, "def ", depth=1, **asked)


@pytest.mark.full
def test_a_graph_takes_windows_of_any_length(folder, whole) -> None:
    trained = TrainedNetwork(folder / "dgl", allow_code=False)
    export_route(trained, 2, "torch_export", folder / "route.pt2")
    graph = torch.export.load(folder / "route.pt2").module()
    for samples, length in ((1, 8), (3, 5)):
        window = torch.randint(0, 256, (samples, length), generator=torch.Generator().manual_seed(length))
        with torch.no_grad():
            assert torch.allclose(graph(window), trained.route(2)(window), atol=1e-6)


def test_tokens_in_a_header_are_those_of_the_run() -> None:
    texts = ["def f(): return 1", "überall – 2"]
    for kind in ("bytes", "characters", "bpe"):
        tokens = make_tokens(kind, texts, vocabulary_size=300)
        back = TokenForm.model_validate_json(TokenForm.of(tokens, 8).model_dump_json()).inputs().tokens
        assert back.names == tokens.names
        assert [back.numbers(text).tolist() for text in texts] == [tokens.numbers(text).tolist() for text in texts]


# --- Models for GPUs ---


@pytest.mark.few
@pytest.mark.parametrize(
    "keys", [(), ("method=backpropagation", "pipeline.schedule=1f1b", "pipeline.micro_batches=8")], ids=["own", "1f1b"]
)
@pytest.mark.parametrize(("name", "parameters"), [("gpt2_small", 124e6), ("gpt_340m", 340e6)])
def test_a_model_for_gpus_is_planned_at_its_size_without_its_text(name, parameters, keys) -> None:
    """Its encoders have the published number of parameters, whose readout is that of its embedding."""
    file = Path(__file__).parents[2] / "specs" / "language" / f"{name}.yaml"
    planner = Planner.open(load_spec(file, keys).spec, UserCode(file.parent), without_data=True)
    plan = planner.plan(planner.costs(probe=False))
    assert plan.predicted_step_time_s > 0
    assert all(stage.memory.activations_bytes > 0 for stage in plan.stage_plans)
    network = planner.workload.network
    parts = [network.component(index, "meta").part_parameters() for index in range(len(network))]
    assert sum(part["f"] for part in parts) == pytest.approx(parameters, rel=0.03)
    assert parts[-1]["head"] > 30e6


SAMPLED = "method={kind: associated_learning, label_dim: 5, sampled_tokens: 20}"


@pytest.mark.full
def test_sampled_tokens_give_the_same_bits_on_any_stages_and_resumed(gpt, whole) -> None:
    one = gpt.run(SAMPLED, "pipeline.stages=1", name="one")
    assert one.summary.weights_sha256 != whole["al"].summary.weights_sha256
    gpt.run(SAMPLED, "pipeline.stages=4", "run.steps=7", name="stopped")
    same(gpt.resume("run.steps=20", "pipeline.stages=2", name="stopped"), one)
    two = gpt.run(SAMPLED, "replicas.count=2", name="two")
    assert two.summary.scores.test == pytest.approx(one.summary.scores.test, rel=1e-5)


@pytest.mark.few
@pytest.mark.parametrize("method", ["dgl", "solo"])
def test_an_evaluation_sends_a_number_for_each_position_and_depth(gpt, whole, processes, method) -> None:
    run = gpt.run(*METHODS[method], "pipeline.stages=2", inline=False)
    same(run, whole[method])
    data = Workload.open(load_spec(gpt.spec).spec, UserCode(gpt.folder)).data
    windows = 2 * (len(data.splits["validation"]) + len(data.splits["test"])) + len(data.splits["train"])
    copies = 6 * 256 * WIDTH * 4 if method == "solo" else 0
    numbers = windows * 8 * 2  # of eight positions, for the two depths of the upper stage
    assert 4 * numbers <= run.summary.bytes_sent["1->0"] - copies < 16 * numbers


# --- What is refused ---

EMBEDDING = "{block: embedding, dim: 8}"


@pytest.mark.parametrize(
    ("key", "overrides"),
    [
        ("data.source", ["data={source: digits}"]),
        ("method.kind", ["method={kind: mono_forward}"]),
        ("task.metric", ["task.metric=bits_per_byte", "data.tokens=characters"]),
        ("method.first_label_loss", ["method={kind: associated_learning, first_label_loss: mse}"]),
        ("data", ["data.docstrings=true"]),
        ("method.first_decoder_activation", [f"{SAMPLED[:-1]}, first_decoder_activation: tanh}}"]),
        ("data", ["data.vocabulary_size=500"]),
        ("model.components[0]", ["model.components.0.causal=false", "model.components.0.layers=2"]),
        ("model.components[0].causal", ["model.components.0.causal=false"]),
        ("model.components[1].bidirectional", [f"model.components=[{EMBEDDING}, {{block: lstm, hidden: 4}}]"]),
        (
            "model.components[1].hand_on_state",
            [f"model.components=[{EMBEDDING}, {{block: lstm, hidden: 4, bidirectional: false, hand_on_state: true}}]"],
        ),
    ],
)
def test_what_does_not_fit_is_refused(gpt, key, overrides) -> None:
    with pytest.raises(SpecError) as error:
        load_spec(gpt.spec, overrides)
    assert key in {problem.key for problem in error.value.problems}


def test_solo_refuses_widths_that_differ(gpt) -> None:
    """A model of the user may give any."""
    block = "{block: transformer, causal: true, dim: 8, heads: 2, feedforward: 16}"
    narrower = (f"model.components=[{block}, {{block: linear, width: 6}}]", "pipeline.costs=null")
    for keys, key in ((narrower, "model.components[0]"), (("method.heads=3",), "method.heads")):
        with pytest.raises(SpecError) as error:
            gpt.run(*METHODS["solo"], *keys)
        assert error.value.problems[0].key == key


def test_blocks_without_positions_are_refused(gpt) -> None:
    with pytest.raises(SpecError) as error:
        gpt.run("model.components=[{block: mlp, widths: [4], repeat: 4}]", "method={kind: decoupled_greedy}")
    assert error.value.problems[0].key in ("model.components", "model.components[0]")


def test_a_run_does_not_go_on_with_other_tokens(gpt: Workshop) -> None:
    """Not even if the user allows changes, for the network knows tokens by their numbers."""
    characters = ("data.tokens=characters", "run.steps=5", "run.evaluate_every=null")
    gpt.run(*characters)
    for file in (gpt.folder / "texts").iterdir():
        file.write_text(file.read_text(encoding="utf-8").replace("(x)", "[x]"), encoding="utf-8")
    with pytest.raises(DataError, match="these are not the data of this run: other classes") as caught:
        gpt.resume("run.steps=10", allow_change=True)
    assert "--allow-change" not in str(caught.value)
