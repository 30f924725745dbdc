"""`method`: how the network is trained."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import BeforeValidator, ConfigDict, Discriminator, Field, Tag

from alray.config.sections.choice import OPEN_TAG, ByShape, Choice
from alray.config.sections.own_code import Name, OfPackage, OwnCode
from alray.config.sections.packages import METHODS as GROUP
from alray.config.sections.section import PositiveFloat, PositiveInt, Section, Width, describe, refusal
from alray.config.sections.task import DEFAULT as DEFAULT_TASK
from alray.config.sections.task import TASKS

DEFAULT = "associated_learning"
"""The method of a spec that names none."""
Activation = Literal["tanh", "sigmoid", "none"]


LabelSmoothing = Annotated[float, Field(ge=0, lt=1)]


class MethodSection(Section):
    """The keys that every method's section has."""

    implementation: ClassVar[str] = ""
    """The class in alray.models.methods that carries it out, as `module:Class`. It is called with `fields`."""
    local_losses: ClassVar[bool] = True
    """Whether every component learns from its own losses, so that no gradient travels between components."""
    encoders_take_samples: ClassVar[bool] = False
    """Whether every encoder takes the samples themselves, not what the encoder below gives."""
    tasks: ClassVar[tuple[str, ...] | None] = (DEFAULT_TASK,)
    """The kinds of task that the method can learn; None: any."""
    takes_shares: ClassVar[bool] = False
    """Whether a label may be a share for each class instead of one class, as that of a mixed sample is."""
    has_label_chain: ClassVar[bool] = False
    """Whether components have label encoders, which can train at a rate of their own (`optimizer.label_lr`)."""

    trains: ClassVar[str] = ""
    """The losses of a component, in words."""
    travels: ClassVar[str] = "s, labels"
    """The tensors that go from component to component in training."""
    every_depth: ClassVar[bool] = True
    """Whether a route of inference ends at every component; otherwise only at the last one."""
    source: ClassVar[str] = ""
    """The publication."""

    kind: str
    """Which method."""

    @classmethod
    def known_tasks(cls) -> tuple[str, ...]:
        """The kinds of alray's tasks that the method can learn."""
        return tuple(TASKS.sections) if cls.tasks is None else cls.tasks

    @classmethod
    def compares_samples(cls) -> bool:
        """Whether losses compare the samples of a mini-batch, so that replicas may gather them."""
        return "gather" in cls.model_fields

    @property
    def fields(self) -> dict[str, Any]:
        """The arguments of the method's constructor, by name: every key but `kind`."""
        return {key: getattr(self, key) for key in type(self).model_fields if key != "kind"}


class Bridge(Section):
    """The bridge b of a component: from its encoder's output to the width of the label chain."""

    pool: PositiveInt | None = 4
    """Images are averaged to at most this height and width first, over exact windows. null: no pooling."""
    hidden: Width | None = None
    """Width of a hidden layer, with the activation of `label_activation`. null: no hidden layer."""


class AssociatedLearning(MethodSection):
    """Associated Learning: every component has its own local losses, nothing travels backwards."""

    implementation = "alray.models.methods.associated:AssociatedLearning"
    abbreviation = "AL"
    tasks = None
    takes_shares = True
    trains = "associated loss, autoencoder loss"
    travels = "s, t"
    source = "Kao and Chen 2021; Wu et al., ICLR 2022"
    has_label_chain = True

    kind: Literal["associated_learning"] = "associated_learning"
    """`associated_learning`."""
    label_dim: Width = 128
    """Width of the label chain t_l."""
    label_activation: Activation = "tanh"
    """After the label encoders g and the bridges b."""
    decoder_activation: Activation = "none"
    """After the label decoders h of every component but the first."""
    first_decoder_activation: Activation = "none"
    """After the label decoder h of the first component, whose output are the classes' scores, or the predictions of
    another task."""
    bridge: Bridge = Bridge()
    """The bridges b."""
    first_label_loss: Literal["auto", "cross_entropy", "mse"] = "auto"
    """Autoencoder loss of the first component; that of the others is the mean squared error. `auto`: the loss of the
    task, in classification the cross-entropy. Default: auto."""
    label_smoothing: LabelSmoothing = 0.0
    """Share of the target that the first component's autoencoder loss spreads evenly over all classes. It is
    not for `first_label_loss: mse`."""
    sampled_tokens: PositiveInt | None = None
    """Tokens, drawn for each mini-batch, from which the first component's autoencoder loss is estimated. It saves time
    where the vocabulary is large. Only for `task: next_token`. null: all tokens."""


class Head(Section):
    """The classifier after the last encoder."""

    pool: PositiveInt | None = 4
    """Images are averaged to at most this height and width first, over exact windows. null: no pooling."""
    hidden: Width | None = None
    """Width of a hidden layer. null: no hidden layer."""
    activation: Literal["sigmoid", "relu", "tanh"] = "relu"
    """After the hidden layer."""
    sequence: Literal["auto", "last_word"] = "auto"
    """How a sequence becomes a vector. `auto`: the mean over its words, or the final state of an `lstm`, that of both
    directions added. `last_word`: the output at the last word; of a bidirectional `lstm` that is twice as wide.
    Default: auto."""


def _head(value: Any) -> Any:
    if isinstance(value, dict | Head) or value == "auto":
        return value
    raise refusal(
        f"expected `auto` or a section, got {describe(value)}",
        "a section is such as {pool: null, hidden: 2500}",
    )


HeadOrAuto = Annotated[
    Annotated[Head, Tag("section")] | Annotated[Literal["auto"], Tag("name")],
    Discriminator(ByShape((dict, Head), "section", "name")),
    BeforeValidator(_head),
]


class Backpropagation(MethodSection):
    """Backpropagation of the loss of the task, in classification the cross-entropy, through all components."""

    implementation = "alray.models.methods.backpropagation:Backpropagation"
    abbreviation = "BP"
    tasks = None
    takes_shares = True
    trains = "the gradient of the last loss"
    travels = "s; the gradient travels down"
    every_depth = False
    source = "Rumelhart, Hinton and Williams 1986"
    local_losses = False

    kind: Literal["backpropagation"]
    """`backpropagation`."""
    head: HeadOrAuto = "auto"
    """The layers after the last encoder. `auto`: average to at most 4 x 4, flatten, one linear layer."""
    label_smoothing: LabelSmoothing = 0.0
    """Share of the target spread evenly over all classes."""
    deep_supervision: Annotated[float, Field(ge=0)] = 0.0
    """Weight of the losses of a classifier after every component but the last, which are added to the last one's loss.
    Gradients go through all components, and every depth is a route. 0: the last component alone has a classifier. It
    needs `pipeline.schedule: single`."""
    tied: bool = False
    """Whether the last layer is the matrix of the tokens' vectors, as in GPT-2. Only for `task: next_token`, where one
    component holds the whole network."""


def _debiased(value: Any) -> Any:
    if value is False or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    raise refusal(
        f"expected false or a class prior, got {describe(value)}",
        "a class prior is the share of one class, such as 0.1 where there are ten of equal size",
    )


class SupervisedContrastive(MethodSection):
    """Supervised contrastive local losses (SCPL): samples of one class are drawn together, the others pushed apart.

    Nothing travels backwards. The last component is a classifier with cross-entropy.
    """

    implementation = "alray.models.methods.contrastive:SupervisedContrastive"
    abbreviation = "SCPL"
    trains = "supervised contrastive loss of a projection; the last one cross-entropy"
    every_depth = False
    source = "Wang 2022, arXiv 2602.00062"

    kind: Literal["supervised_contrastive"]
    """`supervised_contrastive`."""
    projection_dim: Width = 128
    """Width of both layers of the projection heads, whose output the losses compare. Images are averaged to at most
    4 x 4 first."""
    temperature: PositiveFloat = 0.1
    """The divisor of the similarities, which lie in -1..1."""
    debiased: Annotated[
        Annotated[Literal[False], Tag("off")] | Annotated[float, Field(gt=0, lt=1), Tag("prior")],
        Discriminator(ByShape(bool, "off", "prior")),
        BeforeValidator(_debiased),
    ] = False
    """Class prior of the debiased loss (tau+ of Chuang et al. 2020): the share of one class among the data, such as
    0.1 for ten classes of equal size. false: the plain loss (Khosla et al. 2020)."""
    gather: bool = False
    """Whether the losses compare the samples of all replicas: they exchange their projections in every mini-batch, and
    n replicas have the loss of the whole mini-batch. false: each compares the samples of its own share."""
    head: HeadOrAuto = "auto"
    """The layers after the last encoder. `auto`: average to at most 4 x 4, flatten, one linear layer."""
    label_smoothing: LabelSmoothing = 0.0
    """Share of the target that the last component's loss spreads evenly over all classes."""


class DecoupledGreedy(MethodSection):
    """Decoupled greedy learning (DGL): a classifier with the loss of the task after every component.

    Nothing travels backwards, and every depth is a route.
    """

    implementation = "alray.models.methods.greedy:DecoupledGreedy"
    abbreviation = "DGL"
    tasks = None
    takes_shares = True
    trains = "the loss of a readout"
    source = "Belilovsky, Eickenberg and Oyallon, ICML 2020"

    kind: Literal["decoupled_greedy"]
    """`decoupled_greedy`."""
    head: HeadOrAuto = "auto"
    """The classifier after every encoder. `auto`: average to at most 4 x 4, flatten, one linear layer."""
    label_smoothing: LabelSmoothing = 0.0
    """Share of the target spread evenly over all classes."""


class MonoForward(MethodSection):
    """Mono-Forward: a projection to the classes with cross-entropy after every component, and their sum predicts.

    Nothing travels backwards, and every depth is a route.
    """

    implementation = "alray.models.methods.mono_forward:MonoForward"
    abbreviation = "MF"
    trains = "cross-entropy of a projection to the classes"
    source = "arXiv 2501.09238 (2025)"

    kind: Literal["mono_forward"]
    """`mono_forward`."""
    pool: PositiveInt | None = 4
    """Images are averaged to at most this height and width first, over exact windows. null: no pooling, as in the
    paper."""
    prediction: Literal["sum", "last"] = "sum"
    """How a route predicts. `sum`: by the sum of the scores of all its components. `last`: by those of its last one."""


class LocalErrorSignals(MethodSection):
    """Local error signals (predsim): a readout with cross-entropy, and similarities that match those of the labels.

    Nothing travels backwards, and every depth is a route.
    """

    implementation = "alray.models.methods.local_error:LocalErrorSignals"
    abbreviation = "LES"
    trains = "cross-entropy of a readout, similarities that match those of the labels"
    source = "Nøkland and Eidnes, ICML 2019"

    kind: Literal["local_error_signals"]
    """`local_error_signals`."""
    loss: Literal["predsim", "pred", "sim"] = "predsim"
    """`pred`: the cross-entropy of the readout. `sim`: the squared difference of the similarities of samples and of
    labels; the readout then trains without changing the encoder. `predsim`: both."""
    beta: Annotated[float, Field(ge=0, le=1)] = 0.99
    """Share of `sim` in `predsim`."""
    head: HeadOrAuto = "auto"
    """The readout after every encoder. `auto`: average to at most 4 x 4, flatten, one linear layer."""
    gather: bool = False
    """Whether the losses compare the samples of all replicas, which then exchange rows in every mini-batch. false: each
    compares the samples of its own share."""


class ChannelGoodness(MethodSection):
    """Channel-wise competitive learning (CwComp): each class has a group of channels, whose squares compete.

    Nothing travels backwards, and every depth is a route. The channels of every component must be divisible by the
    number of classes.
    """

    implementation = "alray.models.methods.channel_goodness:ChannelGoodness"
    abbreviation = "CwComp"
    trains = "cross-entropy over the squares of groups of channels"
    source = "Papachristodoulou et al., AAAI 2024"

    kind: Literal["channel_goodness"]
    """`channel_goodness`."""


class DecoupledInformation(MethodSection):
    """Decoupled learning with information regularisation (DeInfoReg): variance, similarity and covariance of codes.

    Nothing travels backwards, and every depth is a route, by a classifier of the codes.
    """

    implementation = "alray.models.methods.decoupled_information:DecoupledInformation"
    abbreviation = "DeInfoReg"
    trains = "variance, similarity and covariance of codes, cross-entropy of a classifier of them"
    source = "arXiv 2506.18193 (2025)"

    kind: Literal["decoupled_information"]
    """`decoupled_information`."""
    projection_dim: Width | None = 2048
    """Width of the three layers of the projectors, whose output the loss compares. null: no projector."""
    pool: PositiveInt | None = 4
    """Images are averaged to at most this height and width before the projector, over exact windows. null: no pooling,
    as in the authors' code."""
    classifier_weight: PositiveFloat = 0.001
    """Weight of the cross-entropy of the classifiers, which read the projectors' output and train all below them."""
    gather: bool = False
    """Whether the losses compare the samples of all replicas, which then exchange codes in every mini-batch. false:
    each compares the samples of its own share."""


class ForwardForward(MethodSection):
    """Forward-Forward (FF): rows with the right label get a high goodness at every component, those with a wrong one a
    low one.

    Nothing travels backwards, and every depth is a route. The label is written over the first values of a sample.
    """

    implementation = "alray.models.methods.forward_forward:ForwardForward"
    abbreviation = "FF"
    trains = "goodness of a row with the label and of one with a wrong label"
    source = "Hinton 2022, arXiv 2212.13345; SymBa: arXiv 2303.08418"

    kind: Literal["forward_forward"]
    """`forward_forward`."""
    loss: Literal["threshold", "symba"] = "threshold"
    """`threshold`: the goodness of each row against a threshold. `symba`: that of both rows against each other."""
    alpha: PositiveFloat = 0.5
    """The factor of the difference in SymBa's loss. The goodness is a sum over d values here. Where it is their mean,
    the same loss has a factor d times as large. On the digits 0.5 is more accurate than 4. Default: 0.5."""
    peer_normalisation: Annotated[float, Field(ge=0)] = 0.03
    """Weight of a term that keeps the mean activities of a component's values together. 0: no such term."""
    prediction: Literal["goodness", "activities"] = "goodness"
    """How a route predicts, by all its components but the first. `goodness`: by the sum of the goodness of each label,
    which takes a row for each class. `activities`: by the sum of the scores of classifiers, which read a row without a
    label and train without changing the encoders."""

    @classmethod
    def compares_samples(cls) -> bool:
        """The mean activities do."""
        return True


class NoProp(MethodSection):
    """NoProp: every component denoises an embedding of the label from the sample, which travels with the message.

    Nothing travels backwards, and no component needs what another one computes. The only route is the whole network.
    """

    implementation = "alray.models.methods.noprop:NoProp"
    abbreviation = "NoProp"
    encoders_take_samples = True
    trains = "squared error of the label's embedding, of a noised one and the sample"
    every_depth = False
    source = "Li, Teh and Pascanu 2025, arXiv 2503.24322"

    kind: Literal["noprop"]
    """`noprop`."""
    eta: PositiveFloat = 0.1
    """Factor of the losses of all components."""
    hidden: Width = 256
    """Width of the layers that read an encoder's output and the noised embedding. Images are averaged to at most
    4 x 4 first."""


class AugLocal(MethodSection):
    """Auxiliary networks (AugLocal): after every component copies of encoders above, with a readout and cross-entropy.

    Nothing travels backwards. The only route is the whole network.
    """

    implementation = "alray.models.methods.auglocal:AugLocal"
    abbreviation = "AugLocal"
    trains = "cross-entropy after copies of encoders above"
    every_depth = False
    source = "Ma et al., ICLR 2024"

    kind: Literal["auglocal"]
    """`auglocal`."""
    depth: PositiveInt = 2
    """Copies of encoders in the auxiliary network of the first component, evenly chosen from those above it."""
    pyramid: Annotated[float, Field(ge=0, le=1)] = 0.5
    """How far the last auxiliary network shrinks from `depth` copies towards one. 0: all have `depth`, as far as there
    are encoders."""
    head: HeadOrAuto = "auto"
    """The readouts. `auto`: average to at most 4 x 4, flatten, one linear layer."""


class Solo(MethodSection):
    """SOLO: a language model whose components all read with a copy of the last readout, which is renewed now and then.

    Nothing else travels backwards, and every depth is a route.
    """

    implementation = "alray.models.methods.solo:Solo"
    abbreviation = "SOLO"
    tasks = ("next_token",)
    trains = "the loss of a copy of the last readout, after layers of one's own"
    source = "arXiv 2609.35440 (2026)"

    kind: Literal["solo"]
    """`solo`."""
    copy_every: PositiveInt = 50
    """Mini-batches from one copy of the last readout to the next. A copy is used as many mini-batches after it was
    made, so that no stage waits for it. Default: 50."""
    layers: PositiveInt = 2
    """Causal layers between a component's encoder and the copy. Default: 2."""
    heads: PositiveInt = 4
    """Their attention heads. They must divide the width. Default: 4."""
    feedforward: Width | None = None
    """Width of the hidden layer of their feed-forward networks. null: four times the width."""
    norm: Literal["layer", "rms"] = "rms"
    """Their normalisation, and that before the copy: `layer` or `rms` (RMSNorm). Default: rms."""
    positions: Literal["rotary", "none"] = "none"
    """`rotary`: their queries and keys are turned by their positions. Default: none."""
    activation: Literal["relu", "gelu", "swiglu"] = "gelu"
    """In their feed-forward networks. Default: gelu."""


class OwnMethod(OwnCode, MethodSection):
    """A method of one's own, with local losses; the keys that are not listed here go to its constructor."""

    model_config = ConfigDict(extra="allow")

    tasks = None  # its class says which
    encoders_take_samples = True  # as far as a spec can tell
    has_label_chain = True  # as far as a spec can tell: an optimizer named `label` takes the rate, if there is one

    kind: Annotated[Name, OfPackage(GROUP)]
    """The class, as `python:package.module.Class`, or the name that an installed package gives it. It derives from
    `alray.models.methods.method.Method`."""


Method = Annotated[
    Annotated[AssociatedLearning, Tag("associated_learning")]
    | Annotated[Backpropagation, Tag("backpropagation")]
    | Annotated[SupervisedContrastive, Tag("supervised_contrastive")]
    | Annotated[DecoupledGreedy, Tag("decoupled_greedy")]
    | Annotated[MonoForward, Tag("mono_forward")]
    | Annotated[LocalErrorSignals, Tag("local_error_signals")]
    | Annotated[ChannelGoodness, Tag("channel_goodness")]
    | Annotated[DecoupledInformation, Tag("decoupled_information")]
    | Annotated[ForwardForward, Tag("forward_forward")]
    | Annotated[NoProp, Tag("noprop")]
    | Annotated[AugLocal, Tag("auglocal")]
    | Annotated[Solo, Tag("solo")]
    | Annotated[OwnMethod, Tag(OPEN_TAG)],
    Discriminator(Choice("kind", default=DEFAULT, group=GROUP, own=lambda: METHODS)),
]


METHODS: dict[str, type[MethodSection]] = {
    get_args(member)[1].tag: get_args(member)[0] for member in get_args(get_args(Method)[0])
}
"""The sections of all methods by `kind`; `python` stands for those of one's own."""
BUILT_IN = tuple(kind for kind in METHODS if kind != OPEN_TAG)
