"""A model that is cut by its list of layers, without a trace: every part holds the model and calls its own `forward`.

In a part the layers of other parts are stand-ins, which pass on what they get. A module with weights outside the list
belongs to the first part or to the classifier; elsewhere a stand-in gives zeros of the same shape. The stand-in before
the first layer of the part gives the tensor that came from the part before, and `forward` ends after the last layer of
the part. So masks, positions and all that Python does in `forward` are computed by the model itself, in every part.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from alray.config.sections.section import listed, nearest
from alray.config.user_code import own_error
from alray.core.compat import TorchDispatchMode, tree_leaves, tree_map
from alray.core.counting import counted
from alray.core.errors import FAULTS_OF_USER_CODE, SpecError
from alray.core.randomness.generators import put_back, state_of_torch
from alray.models.imported.ends import PartEnds
from alray.models.imported.given import GivenModel, names_of
from alray.models.imported.hugging_face import shorten
from alray.models.imported.part import Part, without_values
from alray.models.imported.proof import prove
from alray.models.imported.trace import copy_of, first_line
from alray.models.imported.watch import LostError, MadeOfSamples
from alray.models.shape import Shape
from alray.planning.prediction.partition import partition_auto

if TYPE_CHECKING:
    from torch.utils.flop_counter import FlopCounterMode

_LONGEST = 16
"""Positions of the example runs, at most: nothing that they find depends on more."""


class _Ended(BaseException):
    """Ends `forward` after the last layer of a part. It is no Exception, so that `forward` does not catch it."""

    def __init__(self, part: Part, value: torch.Tensor) -> None:
        super().__init__()
        self.part = part
        self.value = value


@dataclass
class _Arrival:
    """What a part got, for its stand-ins, while it computes.

    Attributes:
        put_back: gives the random generators the state that they had when the part began.
    """

    tensor: torch.Tensor | None = None
    put_back: Callable[[], None] | None = None
    taken: bool = False


class _StandIn(nn.Module):
    """Stands for a module of another part, and has its attributes: `forward` may ask for them."""

    def __init__(self, of: nn.Module, arrival: _Arrival) -> None:
        """
        Args:
            of: a copy of the module without values.
        """
        super().__init__()
        self._of = (of,)  # not a submodule, whose parameters would be trained and saved
        self._arrival = arrival

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("__") or "_of" not in self.__dict__:
                raise
            return getattr(self.__dict__["_of"][0], name)


class _LayerStandIn(_StandIn):
    """Passes on what it gets, in the form in which the layer gives it; or gives what came from the part before."""

    def __init__(self, of: nn.Module, arrival: _Arrival, *, form: int | None, gives: bool) -> None:
        """
        Args:
            form: the number of entries of the tuple that the layer gives, the tensor first; None: no tuple.
            gives: whether the part begins after this layer.
        """
        super().__init__(of, arrival)
        self._form = form
        self._gives = gives

    def forward(self, *given: Any, **named: Any) -> Any:
        value = _hidden(given, named)
        if self._gives:
            value = self._arrival.tensor
            self._arrival.taken = True
            if self._arrival.put_back is not None:
                self._arrival.put_back()
        return value if self._form is None else (value, *[None] * (self._form - 1))


class _ZerosStandIn(_StandIn):
    """Gives zeros in the shape of what the module gives: nothing that is used is made of them."""

    def __init__(self, of: nn.Module, arrival: _Arrival, form: Any) -> None:
        """
        Args:
            form: what the module gives, with a `_TensorForm` in place of each tensor.
        """
        super().__init__(of, arrival)
        self._form = form

    def forward(self, *given: Any, **named: Any) -> Any:
        like = self._arrival.tensor
        assert like is not None
        return tree_map(lambda each: each.zeros(like) if isinstance(each, _TensorForm) else each, self._form)


@dataclass(frozen=True)
class _TensorForm:
    """The form of a tensor for any number of samples N and, of texts, of positions T: each size is a number or the
    product of some of these."""

    sizes: tuple[tuple[int, bool, bool], ...]  # factor, whether times N, whether times T
    dtype: torch.dtype

    def zeros(self, like: torch.Tensor) -> torch.Tensor:
        """
        Args:
            like: what a part got, [N, ...] or of texts [N, T, ...].
        """
        dtype = like.dtype if self.dtype.is_floating_point else self.dtype
        return torch.zeros(
            self.shape(like.shape[0], like.shape[1] if like.ndim > 1 else 1), dtype=dtype, device=like.device
        )

    def shape(self, samples: int, positions: int) -> tuple[int, ...]:
        return tuple(
            factor * (samples if by_samples else 1) * (positions if by_positions else 1)
            for factor, by_samples, by_positions in self.sizes
        )


class LayersPart(Part):
    """The layers of a model from one to another; the first part with what comes before them, the classifier with what
    comes after."""

    def __init__(
        self,
        model: nn.Module,
        arrival: _Arrival,
        *,
        last: str | None,
        first: bool,
        example: Callable[[torch.Tensor], torch.Tensor],
        frozen: Sequence[str],
    ) -> None:
        """
        Args:
            model: with stand-ins for what belongs to other parts. It becomes the part's own.
            last: the path of the layer after which `forward` ends; None: it does not.
            first: whether the part gets samples.
            example: a mini-batch of samples of the size of what the part gets.
        """
        super().__init__(frozen=frozen)
        self._alray_arrival = arrival
        self._alray_last = last
        self._alray_first = first
        self._alray_example = example
        self.alray_hold(model)

    def forward(self, s: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """
        Args:
            mask: [N, T] bool of documents.
        """
        (model,), arrival = self.alray_models, self._alray_arrival
        model.training = self.training
        arrival.tensor, arrival.taken = s, False
        draws = self.training and not self._alray_first and s.device.type != "meta"
        arrival.put_back = state_of_torch(s.device) if draws else None
        with ExitStack() as around:
            if s.device.type == "meta":
                around.enter_context(_AnswersWithoutValues())
            if torch.compiler.is_exporting():
                around.enter_context(_left_calls_forgotten())
            if self._alray_last is not None:
                around.enter_context(model.get_submodule(self._alray_last).register_forward_hook(self._alray_end))
            try:
                result: torch.Tensor = scores_of(call(model, s if self._alray_first else self._alray_example(s), mask))
                if self._alray_last is not None:
                    raise RuntimeError(f"the model has not called its layer `{self._alray_last}`")
            except _Ended as ended:
                if ended.part is not self:
                    raise
                result = ended.value
            finally:
                arrival.tensor = arrival.put_back = None
        if not self._alray_first and not arrival.taken:
            raise RuntimeError("the model has not called the layer before those of this part")
        return result

    def alray_watch_samples(self, watched: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Have the samples that stand for those of the first part go through `watched` first."""
        if not self._alray_first:
            example = self._alray_example
            self._alray_example = lambda s: watched(example(s))

    def _alray_end(self, layer: nn.Module, given: Any, output: Any) -> None:
        raise _Ended(self, output[0] if isinstance(output, tuple) else output)


class _AnswersWithoutValues(TorchDispatchMode):
    """On the meta device, `forward` gets 1 or True where it asks for a value, such as whether a mask is of ones. No
    tensor has one there, and whoever computes there wants to know shapes alone."""

    def __torch_dispatch__(
        self, func: Any, types: Collection[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default and args[0].device.type == "meta":
            return torch.ones((), dtype=args[0].dtype).item()
        return func(*args, **(kwargs or {}))


@contextmanager
def _left_calls_forgotten() -> Iterator[None]:
    """Has torch.export forget the calls of modules that `_Ended` leaves, as it forgets those that return."""
    from torch.fx.experimental.proxy_tensor import get_proxy_mode  # slow to load

    mode = get_proxy_mode()
    calls = {} if mode is None else mode.tracer.module_stack
    began = len(calls)
    yield
    while len(calls) > began:
        calls.popitem()


def call(model: nn.Module, samples: torch.Tensor, mask: torch.Tensor | None) -> Any:
    """What a model gives for samples.

    Args:
        mask: [N, T] bool of documents; it has the type and the name that transformers gives it, if the model has this
            name. On the meta device it is left out: its values would be asked for, and shapes do not depend on it.
    """
    parameters = inspect.signature(model.forward).parameters
    named: dict[str, Any] = {}
    if "use_cache" in parameters:
        named["use_cache"] = False  # of generation
    if mask is not None and mask.device.type != "meta":
        named |= {"attention_mask": mask.long()} if "attention_mask" in parameters else {"mask": mask}
    return model(samples, **named)


def scores_of(result: Any) -> Any:
    """The scores in what a model gives: all of it, or `logits` of an output of transformers."""
    return getattr(result, "logits", result)


def takes_documents(model: nn.Module) -> bool:
    """Whether a model is told the mask of documents of different lengths."""
    return bool({"attention_mask", "mask"} & inspect.signature(model.forward).parameters.keys())


def list_of_layers(model: nn.Module) -> str | None:
    """The path of the list with the most weights among those of two or more layers that lie in no other one. None:
    there is none."""
    lists: dict[str, int] = {}
    for path, module in model.named_modules():
        children = [sum(each.numel() for each in child.parameters()) for child in module.children()]
        is_list = isinstance(module, nn.ModuleList) and len(children) > 1 and all(children)
        if is_list and not any(path.startswith(f"{other}.") for other in lists):
            lists[path] = sum(children)
    return max(lists, key=lambda each: lists[each], default=None)


@dataclass
class _Seen:
    """What two runs of the whole model have shown.

    Attributes:
        forms: of each layer, as in `_LayerStandIn`.
        zeros: of each module with weights before the layers, by path, as in `_ZerosStandIn`.
        after: paths of the modules with weights after the layers, in the order of their calls.
        early: names of the parameters before the layers of the modules that hold the list.
        work: of each layer, floating-point operations; the first with all before it.
        scores: the form of the result.
        has_positions: whether what a layer gives has the positions of the samples.
    """

    forms: list[int | None] = field(default_factory=list)
    zeros: dict[str, Any] = field(default_factory=dict)
    after: list[str] = field(default_factory=list)
    early: frozenset[str] = frozenset()
    work: list[float] = field(default_factory=list)
    scores: _TensorForm | None = None
    has_positions: bool = False


class LayeredModel(GivenModel):
    """A model whose layers are called one after the other, each with what the one before gave."""

    def __init__(
        self,
        whole: nn.Module,
        source: str,
        arguments: dict[str, Any],
        sample: Shape,
        *,
        layers: str | None = None,
        freeze: Sequence[str] = (),
        untie: bool = False,
    ) -> None:
        """Raises SpecError.

        Args:
            layers: the path of the list of layers; None: it is looked for.
            sample: the shape of one sample.
        """
        super().__init__(whole, source, arguments, freeze=freeze, untie=untie)
        self._sample = sample
        if sample.words is not None and not takes_documents(whole):
            raise SpecError(
                f"`forward` of {self.title} takes no `mask`, and documents have different lengths",
                key="model.from",
                hint="give it an argument `mask`, [N, T] bool, true where a document has a word",
            )
        self._list = layers if layers is not None else self._found_list()
        if self._list not in dict(whole.named_modules()):
            meant = nearest(self._list, [name for name, _ in whole.named_modules()])
            raise SpecError(
                f"{self.title} has no module `{self._list}`",
                key="model.layers",
                hint=f"did you mean `{meant}`?" if meant else "name its list of layers by its path",
            )
        self._layers = [f"{self._list}.{name}" for name, _ in whole.get_submodule(self._list).named_children()]
        if len(self._layers) < 2:
            raise SpecError(
                f"`{self._list}` of {self.title} has {counted(len(self._layers), 'layer')}: a cut is between two",
                key="model.layers",
                hint="name a list with more layers, such as a torch.nn.ModuleList",
            )
        self._require_untied()

    def _found_list(self) -> str:
        found = list_of_layers(self.whole)
        if found is None:
            raise SpecError(
                f"{self.title} has no list of two or more layers",
                key="model.from",
                hint="give a model with more layers, or name the list by model.layers",
            )
        return found

    @cached_property
    def _outside(self) -> list[str]:
        """The paths of the outermost modules with weights that neither are in the list nor hold it."""
        found = []
        for around in self._around:
            for name, child in self.whole.get_submodule(around).named_children():
                path = f"{around}.{name}" if around else name
                if path not in (*self._around, self._list) and any(True for _ in child.parameters()):
                    found.append(path)
        return found

    @cached_property
    def _around(self) -> list[str]:
        """The paths of the modules that hold the list, the outermost first."""
        names = self._list.split(".")
        return [".".join(names[:count]) for count in range(len(names))]

    def _place(self, name: str) -> str:
        """The layer, or the module outside the list, that has this parameter; its own name if none has."""
        return next((path for path in (*self._layers, *self._outside) if name.startswith(f"{path}.")), name)

    def _require_untied(self) -> None:
        for names in names_of(self.whole):
            if len({self._place(name) for name in names}) > 1:
                raise SpecError(
                    f"{self.title} cannot be cut: {listed(names, 'and')} are one parameter (tied weights), which one "
                    "component must hold",
                    key="model.from",
                    hint="model.untie=true gives each a copy, which is trained by itself",
                )

    @cached_property
    def _seen(self) -> _Seen:
        """Raises SpecError where the layers do not follow each other with one tensor."""
        first, second = self._observed(2, 0), self._observed(3, 1)
        seen = _Seen()
        for number, path in enumerate(self._layers):
            entries, value = first.outputs[path]
            seen.forms.append(entries)
            other = second.outputs[path][1]
            form = _form(value, other, first.sizes, second.sizes)
            if form is None or not form.sizes[0][1]:
                raise self._refused(f"its layer `{path}` gives {tuple(value.shape)} for two samples")
            if number == 0:
                seen.has_positions = value.ndim > 2 and form.sizes[1] == (1, False, True)
        pairs = pairwise([0.0, *first.work])
        seen.work = [after - before for before, after in pairs]
        for path in self._outside:
            calls = first.called.get(path, [])
            if not calls:
                continue  # no part has its weights
            if calls == [0] * len(calls):
                seen.zeros[path] = self._zeros(path, first, second)
            elif calls == [len(self._layers)] * len(calls):
                seen.after.append(path)
            else:
                raise self._refused(f"it calls `{path}` between its layers")
        seen.early = self._used_before()
        seen.after.sort(key=list(first.called).index)
        result = _form(first.result, second.result, first.sizes, second.sizes)
        if result is None:
            raise self._refused(f"it gives {tuple(first.result.shape)} for two samples")
        seen.scores = result
        return seen

    @cached_property
    def _between(self) -> list[str]:
        """Names of the parameters of the modules that hold the list."""
        return [name for name, _ in self.whole.named_parameters() if self._place(name) == name]

    def _used_before(self) -> frozenset[str]:
        """Those of them on which the input of the first layer depends."""
        if not self._between:
            return frozenset()
        got: list[torch.Tensor] = []

        def note(layer: nn.Module, given: Any, named: Any) -> None:
            got.append(_hidden(given, named))

        model = copy.deepcopy(self.whole).requires_grad_().eval()
        watch = model.get_submodule(self._layers[0]).register_forward_pre_hook(note, with_kwargs=True)
        with watch, put_back(), torch.device("cpu"):
            self._called(model, self._samples(2, 0))
        if not got[0].requires_grad:
            return frozenset()
        parameters = [model.get_parameter(name) for name in self._between]
        found = torch.autograd.grad(got[0].sum(), parameters, allow_unused=True)
        return frozenset(name for name, each in zip(self._between, found, strict=True) if each is not None)

    def _zeros(self, path: str, first: _Run, second: _Run) -> Any:
        def form(one: Any, other: Any) -> Any:
            if not isinstance(one, torch.Tensor):
                return one
            found = _form(one, other, first.sizes, second.sizes)
            if found is None:
                raise self._refused(f"its `{path}` gives {tuple(one.shape)} for two samples")
            return found

        return tree_map(form, first.outside[path], second.outside[path])

    def _observed(self, samples: int, shorter: int) -> _Run:
        """A run of the whole model in evaluation.

        Args:
            shorter: by how many positions samples are shorter than the longest.
        """
        with put_back(), torch.device("cpu"):  # parts are also made where shapes alone are looked for
            return self._run_of(self._samples(samples, shorter))

    def _run_of(self, given: torch.Tensor) -> _Run:
        from torch.utils.flop_counter import FlopCounterMode  # with it comes Triton, which no stage needs

        run = _Run((given.shape[0], given.shape[1]))
        model = self.whole.eval()
        with ExitStack() as around, torch.no_grad():
            counter = around.enter_context(FlopCounterMode(display=False))
            for path in self._layers:
                hook = partial(self._note_layer, run, path, counter)
                around.enter_context(model.get_submodule(path).register_forward_hook(hook, with_kwargs=True))
            for path in self._outside:
                hook = partial(self._note_outside, run, path)
                around.enter_context(model.get_submodule(path).register_forward_hook(hook))
            run.result = scores_of(self._called(model, given))
        if list(run.outputs) != self._layers:
            missing = next((path for path in self._layers if path not in run.outputs), self._layers[0])
            raise self._refused(f"it does not call each of its layers in order: see `{missing}`")
        if not isinstance(run.result, torch.Tensor):
            raise self._refused(f"it gives a `{type(run.result).__name__}`, not one tensor, and no `logits`")
        return run

    def _samples(self, count: int, shorter: int) -> torch.Tensor:
        shape = tuple(self._sample)
        if self._sample.is_text:
            shape = (max(min(shape[0], _LONGEST) - shorter, 1),)
        return torch.zeros((count, *shape), dtype=self._sample.dtype)

    def _called(self, model: nn.Module, given: torch.Tensor) -> Any:
        try:
            return call(model, given, None)
        except FAULTS_OF_USER_CODE as error:
            if isinstance(error, SpecError):
                raise
            message = f"{self.title} does not take samples of {tuple(given.shape[1:])}: {first_line(error)}"
            hint = self._sample.hint_of_numbers or (
                "set data.image_size, data.context or the like, or give other arguments by `with`"
            )
            raise own_error(error, message, key="model.from", hint=hint) from error

    def _note_layer(
        self, run: _Run, path: str, counter: FlopCounterMode, layer: nn.Module, given: Any, named: Any, output: Any
    ) -> None:
        value, entries = output, None
        if isinstance(output, tuple):
            value, entries = output[0], len(output)
            if any(isinstance(each, torch.Tensor) for each in tree_leaves(output[1:])):
                raise self._refused(f"its layer `{path}` gives more than one tensor")
            if any(each is not None for each in output[1:]):
                raise self._refused(f"its layer `{path}` gives more than a tensor")
        if not isinstance(value, torch.Tensor) or not isinstance(_hidden(given, named), torch.Tensor):
            raise self._refused(f"its layer `{path}` does not take and give a tensor")
        if path in run.outputs:
            raise self._refused(f"it calls its layer `{path}` twice")
        run.outputs[path] = (entries, value)
        run.work.append(float(counter.get_total_flops()))

    def _note_outside(self, run: _Run, path: str, module: nn.Module, given: Any, output: Any) -> None:
        run.called.setdefault(path, []).append(len(run.outputs))
        run.outside[path] = output

    def _refused(self, why: str) -> SpecError:
        return SpecError(
            f"{self.title} cannot be cut after the layers of `{self._list}`: {why}",
            key="model.from",
            hint="each layer must get the tensor that the one before gave, and give one; name another list by "
            "model.layers, if there is one",
        )

    @property
    def cut_points(self) -> list[str]:
        return self._layers

    @property
    def last_layer(self) -> str:
        return self._seen.after[-1] if self._seen.after else self._layers[-1]

    def cut(
        self,
        components: int | str,
        given: Sequence[str] | None,
        sample: Shape,
        *,
        several: bool = False,
        pooled: bool = True,
    ) -> list[PartEnds]:
        layers, seen = self._layers, self._seen
        if given is not None:
            for name in given:
                if name not in layers[:-1]:
                    meant = nearest(name, layers[:-1])
                    raise SpecError(
                        f"{self.title} has no layer `{name}` after which it can be cut",
                        key="model.cut",
                        hint=f"did you mean `{meant}`?" if meant else f"cut it after {listed(layers[:-1])}",
                    )
            ends = [layers.index(name) for name in given]
            if ends != sorted(set(ends)):
                raise SpecError(
                    "the cut points must follow each other", key="model.cut", hint="name the layers in their order"
                )
            cut = list(given)
        elif components == "auto":
            cut = layers[:-1]
        else:
            assert isinstance(components, int)
            if components > len(layers):
                raise SpecError(
                    f"{self.title} can be cut into at most {counted(len(layers), 'component')}, one for each layer",
                    key="model.components",
                    hint=f"ask for {len(layers)} or fewer",
                )
            sizes = partition_auto(seen.work, components)
            cut = [layers[sum(sizes[: index + 1]) - 1] for index in range(components - 1)]
        return [PartEnds(after, until) for after, until in pairwise([None, *cut, layers[-1]])]

    def shape_after(self, part: Part, input: Shape) -> tuple[int, ...]:
        """The shape of one sample after the classifier."""
        assert self._seen.scores is not None
        return self._seen.scores.shape(1, self._sample[0])[1:]

    def part(self, after: str | None, until: str | None, takes: tuple[tuple[int, ...], ...] = ()) -> LayersPart:
        return self._part(after, until, {})

    def _of(self, after: str | None, until: str | None) -> range:
        """The numbers of the layers between two cut points."""
        names = self._layers
        return range(
            0 if after is None else names.index(after) + 1, len(names) if until is None else names.index(until) + 1
        )

    def _part(self, after: str | None, until: str | None, shared: Mapping[int, Any]) -> LayersPart:
        """
        Args:
            shared: what stands for a parameter in place of a copy, by its identity.
        """
        seen, own = self._seen, self._of(after, until)
        is_own = dict.fromkeys(self._outside, False)  # of a module that is never called, no part has the weights
        is_own |= dict.fromkeys(seen.zeros, after is None) | dict.fromkeys(seen.after, until is None)
        is_own |= {path: number in own for number, path in enumerate(self._layers)}
        memo: dict[int, Any] = dict(shared)
        for path, stays in is_own.items():
            if not stays:
                module = self.whole.get_submodule(path)
                memo |= {id(each): without_values(each) for each in (*module.parameters(), *module.buffers())}
        model = copy.deepcopy(self.whole, memo)
        arrival = _Arrival()
        forms = dict(zip(self._layers, seen.forms, strict=True))
        for path, stays in is_own.items():
            around, _, name = path.rpartition(".")
            there = model.get_submodule(path)
            if stays:
                continue
            if path in forms:
                gives = own.start > 0 and path == self._layers[own.start - 1]
                stand_in: _StandIn = _LayerStandIn(there, arrival, form=forms[path], gives=gives)
            else:
                stand_in = _ZerosStandIn(there, arrival, seen.zeros.get(path))
            model.get_submodule(around)._modules[name] = stand_in
        for path in self._between:
            if (after if path in seen.early else until) is not None:
                around, _, name = path.rpartition(".")
                holder = model.get_submodule(around)
                value = holder._parameters.pop(name)
                assert value is not None
                holder.register_buffer(name, torch.zeros_like(value), persistent=False)
        example = partial(_example, tuple(self._sample), self._sample.dtype, has_positions=seen.has_positions)
        return LayersPart(model, arrival, last=until, first=after is None, example=example, frozen=tuple(self.frozen))

    def up_to(self, until: str) -> nn.Module | None:
        """None also where the config of a model of transformers cannot say how many layers are left."""
        model = copy.deepcopy(self.whole)
        layers = model.get_submodule(self._list)._modules
        kept = len(self._of(None, until))
        for name in list(layers)[kept:]:
            del layers[name]
        config = getattr(model, "config", None)
        if config is not None and not shorten(model, config, len(self._layers), kept):
            return None
        return model

    def _require_no_samples(self, chain: Sequence[LayersPart]) -> None:
        """Raise SpecError if a part but the first uses values of samples: it would get those of zeros.

        A comparison of the chain with the whole cannot tell, where a rare value makes the difference. With this, a part
        computes of what came to it, of the mask and of sizes alone.

        Args:
            chain: the parts and the classifier.
        """
        values = self._samples(2, 0)
        try:
            with torch.no_grad():
                for part in chain:
                    of_samples = MadeOfSamples()
                    part.alray_watch_samples(of_samples.watched)
                    with of_samples:
                        values = part.eval()(values)
                    if values in of_samples:
                        raise LostError(
                            "uses the values of its samples after its first layers, and only these get them"
                        )
        except LostError as error:
            message = f"`forward` of {self.title} {error}"
            hint = "write a choice by values with torch.where, or move it into the layers or the module before them"
            raise own_error(error, message, key="model.from", hint=hint) from error

    def prove(self, parts: Sequence[PartEnds], sample: Shape) -> None:
        whole = copy_of(self.whole, self.title, own=False)
        names = dict(whole.named_parameters())
        shared = {id(each): names[name] for name, each in self.whole.named_parameters()}
        ends = [*parts, PartEnds(parts[-1].until, None)]
        complete = self._part(None, None, shared)
        (model,) = complete.alray_models
        self._require_no_samples([self._part(part.after, part.until, {}) for part in ends])
        prove(
            complete,
            [self._part(part.after, part.until, shared) for part in ends],
            sample,
            self.title,
            model=model,
            frozen=self.frozen,
            layers={
                self._layers[layer]: number
                for number, part in enumerate(parts)
                for layer in self._of(part.after, part.until)
            },
        )


@dataclass
class _Run:
    """What a run of the whole model has shown.

    Attributes:
        sizes: the numbers of samples and of positions.
        outputs: of each layer, with the number of entries of its tuple.
        work: floating-point operations up to the end of each layer.
        called: for each module outside the list, how many layers had been called before each of its calls.
        outside: what it gave.
    """

    sizes: tuple[int, int] = (0, 0)
    outputs: dict[str, tuple[int | None, torch.Tensor]] = field(default_factory=dict)
    work: list[float] = field(default_factory=list)
    called: dict[str, list[int]] = field(default_factory=dict)
    outside: dict[str, Any] = field(default_factory=dict)
    result: Any = None


def _hidden(given: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    """The tensor that a layer gets: its first argument."""
    return given[0] if given else next(iter(named.values()), None)


def _form(
    value: torch.Tensor, other: torch.Tensor, sizes: tuple[int, int], of_other: tuple[int, int]
) -> _TensorForm | None:
    """The form of a tensor, as two runs with other numbers of samples and positions gave it. None: it has none."""
    found = []
    for one, two in zip(value.shape, other.shape, strict=True):
        for by_samples, by_positions in ((False, False), (True, False), (False, True), (True, True)):
            in_one, in_two = (
                (samples if by_samples else 1) * (positions if by_positions else 1)
                for samples, positions in (sizes, of_other)
            )
            if one % in_one == 0 and one // in_one * in_two == two:
                found.append((one // in_one, by_samples, by_positions))
                break
        else:
            return None
    return _TensorForm(tuple(found), value.dtype)


def _example(shape: tuple[int, ...], dtype: torch.dtype, s: torch.Tensor, *, has_positions: bool) -> torch.Tensor:
    """A mini-batch of samples of zeros, as many as a part got, and as long."""
    if not dtype.is_floating_point:
        sizes = (s.shape[1],) if has_positions else shape
        return torch.zeros((s.shape[0], *sizes), dtype=dtype, device=s.device)
    return torch.zeros((s.shape[0], *shape), dtype=s.dtype, device=s.device)
