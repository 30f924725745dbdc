"""Local learning in one file: Associated Learning (AL), SCPL, DGL and backpropagation (BP) in plain torch.

    python examples/one_file.py                             # AL, in this process
    python examples/one_file.py --stages 2                  # AL, through two processes
    python examples/one_file.py --method scpl --steps 40    # also dgl and bp

This is what alray computes, without what it is made of: read it from top to bottom. It trains the network of
specs/quickstart.yaml and prints a hash of all weights, `weights_sha256`. On the same kind of processor, alray ends in
the same hash:

    alray run specs/quickstart.yaml
    alray run specs/quickstart.yaml method=supervised_contrastive run.steps=40
    alray run specs/quickstart.yaml method=decoupled_greedy
    alray run specs/quickstart.yaml method=backpropagation pipeline.stages=1 pipeline.schedule=auto

Only two things come from alray: the mini-batches, and `derive_seed`.
"""

import argparse
import hashlib

import torch
from torch import nn
from torch.nn import functional

from alray.data.batches import TrainBatches
from alray.data.dataset import open_data
from alray.randomness.seeds import derive_seed
from alray.spec.data import Digits

# --- The values of specs/quickstart.yaml ---

SEED = 0
DATA = Digits(source="digits", image_size=16, batch_size=64, validation_fraction=0.1, last_batch="drop")
CLASSES = 10
COMPONENTS = [
    # channels that come in, channels that go out, whether a 2 x 2 max pool follows, size of the maps that go out
    (1, 32, False, 16),
    (32, 64, True, 8),
    (64, 64, False, 8),
    (64, 128, True, 4),
]
LABEL_DIM = 128  # AL: width of the label codes t_l
PROJECTION_DIM = 128  # SCPL: width of both layers of the projections
TEMPERATURE = 0.1  # SCPL: what similarities are divided by
LEARNING_RATE = 1e-3  # of Adam (Kingma and Ba 2015, algorithm 1), whose other values are torch's defaults
STEPS = 400  # 20 epochs of 20 mini-batches
IN_FLIGHT = 4  # mini-batches that may wait between two stages


# --- The parts that components are made of ---


def seed_weights(index, part):
    """Seed torch before the weights of a part are drawn, so that they depend on (seed, component, part) alone.

    Any process can then make any component, and one part does not change the weights of another.
    """
    torch.manual_seed(derive_seed(SEED, "weights", index, part))


def encoder(index):
    """f: a convolution with batch normalisation and ReLU, then perhaps a max pool."""
    channels_in, channels_out, pool, _ = COMPONENTS[index]
    seed_weights(index, "f")
    layers = [
        nn.Conv2d(channels_in, channels_out, kernel_size=3, padding=1, bias=False),
        nn.BatchNorm2d(channels_out),
        nn.ReLU(),
    ]
    if pool:
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers)


def to_vector(index):
    """What stands before every linear layer on maps: they are averaged to 4 x 4 and flattened. It has no weights."""
    size = COMPONENTS[index][3]
    return nn.Sequential(nn.AvgPool2d(size // 4), nn.Flatten())


def vector_width(index):
    """Number of values that `to_vector` gives for a sample."""
    return COMPONENTS[index][1] * 4 * 4


def classifier(index):
    """The linear classifier behind an encoder: scores of the classes."""
    seed_weights(index, "head")
    return nn.Sequential(to_vector(index), nn.Linear(vector_width(index), CLASSES))


# --- The methods with local losses ---
#
# A component is one link of the chain. `losses(s, y)` gets what the component below has passed on: s, the samples or the
# output of its encoder [N, ...], and y, what travels with the labels. It returns the loss that trains the component, and
# the s and y for the component above. Whoever passes these on detaches them: no gradient goes from component to
# component. That is all that makes the losses local.


class Associated(nn.Module):
    """Associated Learning: encoder f, bridge b, label encoder g, label decoder h.

        t_l = g_l(t_(l-1))      autoencoder loss   d(h_l(t_l), t_(l-1))        trains g_l and h_l
        s_l = f_l(s_(l-1))      associated loss    MSE(b_l(s_l), stop(t_l))    trains f_l and b_l
        passed on               stop(s_l), stop(t_l)

    s_0 is the picture and t_0 the one-hot label. d is the cross-entropy for l = 1, and the mean squared error (MSE) for
    the others. `stop` lets no gradient through.

    Sources: Kao and Chen 2021, "Associated Learning", Neural Computation 33(1); Wu, Lin, Chen and Chen, ICLR 2022,
    section 3. The papers have an optimizer for f and b, and one for g and h. Here and in what follows, one Adam has all
    parameters of a component: it computes each of them alone, so the weights are the same.
    """

    def __init__(self, index):
        super().__init__()
        self.first = index == 0
        width = CLASSES if self.first else LABEL_DIM
        self.f = encoder(index)
        seed_weights(index, "b")
        self.b = nn.Sequential(to_vector(index), nn.Sequential(nn.Linear(vector_width(index), LABEL_DIM), nn.Tanh()))
        seed_weights(index, "g")
        self.g = nn.Sequential(nn.Linear(width, LABEL_DIM), nn.Tanh())
        seed_weights(index, "h")
        self.h = nn.Sequential(nn.Linear(LABEL_DIM, width))

    def losses(self, s, y):
        """y: class numbers [N] for the first component, t_(l-1) [N, LABEL_DIM] for the others."""
        t_below = functional.one_hot(y, CLASSES).float() if self.first else y
        s = self.f(s)
        t = self.g(t_below)
        associated = functional.mse_loss(self.b(s), t.detach())
        if self.first:
            autoencoder = functional.cross_entropy(self.h(t), t_below)
        else:
            autoencoder = functional.mse_loss(self.h(t), t_below)
        # No parameter is in both losses, so the gradient of the sum is that of each loss alone.
        return associated + autoencoder, s, t

    def turn(self, s):
        """A prediction turns here from the encoders to the label decoders."""
        return self.b(s)

    def down(self, t):
        """A prediction comes down: from t_l to t_(l-1), and from t_1 to scores of the classes."""
        return self.h(t)


class Contrastive(nn.Module):
    """Supervised contrastive parallel learning (SCPL): encoder f, and a projection p; the last one has a classifier.

        z = p_l(s_l), each row divided by its norm
        loss of anchor i   -1/|P(i)| * sum over p in P(i) of log( exp(z_i . z_p / T) / sum over a != i of exp(z_i . z_a / T) )

    P(i) are the other samples of i's class in the mini-batch, and T is the temperature. The loss is the mean over the
    anchors that have such a sample. It trains f_l and p_l. s_l and the class numbers are passed on. The last component
    has the cross-entropy of its classifier instead.

    Sources: SCPL: Wang 2022; Ho et al., arXiv 2602.00062. The loss: Khosla et al. 2020, "Supervised Contrastive
    Learning", equation 2 (L_out); its section 3.1 has the projection.
    """

    def __init__(self, index):
        super().__init__()
        self.last = index == len(COMPONENTS) - 1
        self.f = encoder(index)
        if self.last:
            self.head = classifier(index)
        else:
            seed_weights(index, "p")
            self.p = nn.Sequential(
                to_vector(index),
                nn.Linear(vector_width(index), PROJECTION_DIM),
                nn.ReLU(),
                nn.Linear(PROJECTION_DIM, PROJECTION_DIM),
            )

    def losses(self, s, y):
        """y: class numbers [N]."""
        s = self.f(s)
        if self.last:
            return functional.cross_entropy(self.head(s), y), s, y
        z = functional.normalize(self.p(s), dim=1)
        itself = torch.eye(len(y), dtype=torch.bool)
        similarities = (z @ z.T / TEMPERATURE).masked_fill(itself, -torch.inf)  # [N, N]; exp gives 0 for i itself
        negative_logs = torch.logsumexp(similarities, 1, keepdim=True) - similarities
        positives = (y.unsqueeze(1) == y.unsqueeze(0)) & ~itself  # P(i) is row i
        of_anchors = torch.where(positives, negative_logs, 0.0).sum(1) / positives.sum(1).clamp(min=1)
        loss = of_anchors.sum() / positives.any(1).sum().clamp(min=1)
        return loss, s, y

    def turn(self, s):
        return self.head(s)

    def down(self, scores):
        return scores


class Greedy(nn.Module):
    """Decoupled greedy learning (DGL): encoder f, and a classifier of its own.

        loss   cross-entropy(head_l(s_l), labels)    trains f_l and head_l

    s_l and the class numbers are passed on. Source: Belilovsky, Eickenberg and Oyallon 2020, "Decoupled Greedy Learning
    of CNNs", algorithm 1.
    """

    def __init__(self, index):
        super().__init__()
        self.f = encoder(index)
        self.head = classifier(index)

    def losses(self, s, y):
        """y: class numbers [N]."""
        s = self.f(s)
        return functional.cross_entropy(self.head(s), y), s, y

    def turn(self, s):
        return self.head(s)

    def down(self, scores):
        return scores


def train_by_local_losses(components, mini_batches, pass_on):
    """Train components that follow each other: the whole network, or one stage of it.

    mini_batches: gives (s, y) for the first of these components. pass_on: takes (s, y) of the last one.
    """
    optimizers = [torch.optim.Adam(component.parameters(), lr=LEARNING_RATE) for component in components]
    for s, y in mini_batches:
        losses = []
        for component in components:
            loss, s, y = component.losses(s, y)
            s, y = s.detach(), y.detach()
            losses.append(loss)
        # What is passed on was computed before any update, so it does not depend on who updates first. And the stage
        # above can begin before this one has computed a gradient.
        pass_on(s, y)
        for loss, optimizer in zip(losses, optimizers, strict=True):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


# --- Backpropagation ---


class Backpropagated(nn.Module):
    """Backpropagation (BP): encoder f; the last component has a classifier too. It trains all components.

        loss   cross-entropy(head_L(s_L), labels)    trains f_1, ..., f_L and head_L

    Source: Rumelhart, Hinton and Williams 1986, "Learning representations by back-propagating errors", Nature 323.
    """

    def __init__(self, index):
        super().__init__()
        self.f = encoder(index)
        if index == len(COMPONENTS) - 1:
            self.head = classifier(index)

    def turn(self, s):
        return self.head(s)

    def down(self, scores):
        return scores


def train_by_backpropagation(components, mini_batches):
    """Train the whole network. Component 1 cannot be updated before the gradient has come back from the last one."""
    optimizers = [torch.optim.Adam(component.parameters(), lr=LEARNING_RATE) for component in components]
    for s, y in mini_batches:
        for component in components:
            s = component.f(s)
        loss = functional.cross_entropy(components[-1].head(s), y)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()


# --- Two stages: two processes with half of the components each ---


def read_mini_batches(steps):
    """The mini-batches of the run: the samples are shuffled anew for each epoch, by the seed."""
    data = open_data(DATA, seed=SEED, load=None)
    for batch in TrainBatches(data, seed=SEED, start_step=0, end_step=steps, workers=0):
        yield batch.samples, batch.labels


def train_stage(stage, halves, steps, between):
    """One of the two processes. between: the queue from stage 0 to stage 1; nothing goes the other way.

    Stage 0 goes on with its backward pass, its update and the next mini-batch while stage 1 has this one. Tensors go
    through the queue as NumPy arrays, so that stage 0 may end before stage 1 has read them.
    """
    torch.set_num_threads(1)
    if stage == 0:
        mini_batches = read_mini_batches(steps)

        def pass_on(s, y):
            between.put((s.numpy(), y.numpy()))  # waits while IN_FLIGHT mini-batches are in the queue
    else:
        mini_batches = ([torch.from_numpy(array) for array in between.get()] for _ in range(steps))
        pass_on = keep_nothing
    train_by_local_losses(halves[stage], mini_batches, pass_on)


def keep_nothing(s, y):
    """Nothing is above the last component."""


def train_on_two_stages(components, steps):
    """Train in two processes of their own. The weights lie in shared memory, so they are here at the end."""
    for component in components:
        component.share_memory()
    halves = components[:2], components[2:]  # any other cut gives the same weights
    between = torch.multiprocessing.get_context("spawn").Queue(maxsize=IN_FLIGHT)
    torch.multiprocessing.spawn(train_stage, args=(halves, steps, between), nprocs=2)


# --- What came of it ---


@torch.no_grad()
def test_accuracy(components):
    """Share of the test samples whose class is predicted by these components, the first ones of the network.

    A prediction goes up through the encoders, turns at the last of these components, and comes down: with AL through
    the label decoders h_l, ..., h_1; with the other methods the scores of a classifier pass unchanged.
    """
    test = open_data(DATA, seed=SEED, load=None).test
    s, labels = test.take(range(len(test)))
    for component in components:
        s = component.eval().f(s)
    scores = components[-1].turn(s)
    for component in reversed(components):
        scores = component.down(scores)
    return (scores.argmax(1) == labels).float().mean().item()


def weights_sha256(components):
    """SHA-256 over the name and the bytes of every parameter and buffer, in the order of the network."""
    digest = hashlib.sha256()
    for component in components:
        for name, tensor in component.state_dict().items():
            digest.update(name.encode())
            digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


METHODS = {"al": Associated, "scpl": Contrastive, "dgl": Greedy, "bp": Backpropagated}


def main():
    parser = argparse.ArgumentParser(description="Train the network of specs/quickstart.yaml in plain torch.")
    parser.add_argument("--method", choices=METHODS, default="al")
    parser.add_argument("--stages", type=int, choices=(1, 2), default=1, help="processes that share the components")
    parser.add_argument("--steps", type=int, default=STEPS, help="number of mini-batches")
    chosen = parser.parse_args()
    if chosen.method == "bp" and chosen.stages == 2:
        parser.error("--stages 2 is for local losses: with bp, stage 0 waits for the gradients of stage 1")

    torch.set_num_threads(1)  # as in alray: with two threads, sums are rounded differently
    components = [METHODS[chosen.method](index) for index in range(len(COMPONENTS))]
    if chosen.stages == 2:
        train_on_two_stages(components, chosen.steps)
    elif chosen.method == "bp":
        train_by_backpropagation(components, read_mini_batches(chosen.steps))
    else:
        train_by_local_losses(components, read_mini_batches(chosen.steps), keep_nothing)

    every_depth = chosen.method in ("al", "dgl")
    for depth in range(1 if every_depth else len(components), len(components) + 1):
        print(f"depth {depth}: test accuracy {test_accuracy(components[:depth]):.4f}")
    print(f"weights_sha256 {weights_sha256(components)}")


if __name__ == "__main__":
    main()
