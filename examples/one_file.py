"""Associated Learning (AL), SCPL, DGL and backpropagation (BP) in one file of plain torch, to read from top to bottom.

    python examples/one_file.py                             # AL, in this process
    python examples/one_file.py --stages 2                  # AL, through two processes
    python examples/one_file.py --method scpl --steps 40    # also dgl and bp

It trains the network of specs/quickstart.yaml and prints a hash of all weights. On the same kind of processor, alray
ends in the same `weights_sha256`:

    alray run specs/quickstart.yaml
    alray run specs/quickstart.yaml method=supervised_contrastive run.steps=40
    alray run specs/quickstart.yaml method=decoupled_greedy
    alray run specs/quickstart.yaml method=backpropagation

Mini-batches and seeds come from alray. The network, the losses, the updates and the two stages are all here.
"""

import argparse
import hashlib

import torch
from torch import nn
from torch.nn import functional

from alray.core.randomness.seeds import derive_seed
from alray.data.batches import TrainBatches
from alray.data.opening import open_data
from alray.parts.sources.digits.keys import Digits

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

    Any process can then make any component. Nothing in this network draws random numbers in training. Where something
    does, such as dropout, alray seeds torch from (seed, component, step) before the encoder runs.
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
    """From maps to a vector, for a linear layer: they are averaged to 4 x 4 and flattened. It has no weights."""
    size = COMPONENTS[index][3]
    return nn.Sequential(nn.AvgPool2d(size // 4), nn.Flatten())


def vector_width(index):
    """Number of values that `to_vector` gives for a sample."""
    return COMPONENTS[index][1] * 4 * 4


def classifier(index):
    """The linear classifier after an encoder: scores of the classes."""
    seed_weights(index, "head")
    return nn.Sequential(to_vector(index), nn.Linear(vector_width(index), CLASSES))


# --- The methods with local losses ---
#
# A component is one link of the chain. `losses(s, y)` gets what the component below has passed on: s [N, ...] is the
# samples or the output of an encoder, and y is what travels with the labels. It returns the loss of this component, and
# s and y for the component above. `train_by_local_losses` detaches both before it passes them on, so no gradient goes
# from one component to another. That makes the losses local.


class Associated(nn.Module):
    """Associated Learning: encoder f, bridge b, label encoder g, label decoder h.

        t_l = g_l(t_(l-1))      autoencoder loss   d(h_l(t_l), t_(l-1))        trains g_l and h_l
        s_l = f_l(s_(l-1))      associated loss    MSE(b_l(s_l), stop(t_l))    trains f_l and b_l
        passed on               stop(s_l), stop(t_l)

    s_0 is the picture and t_0 the one-hot label. d is the cross-entropy for l = 1, and the mean squared error (MSE) for
    the others. `stop` lets no gradient through.

    Sources: Kao and Chen 2021, Neural Computation 33(1); Wu, Lin, Chen and Chen, ICLR 2022, section 3.
    """

    def __init__(self, index):
        super().__init__()
        self.first = index == 0
        width = CLASSES if self.first else LABEL_DIM
        self.f = encoder(index)
        seed_weights(index, "b")
        # One Sequential in another, because the names of the weights are hashed: this one is `b.1.0.weight` in alray.
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


class Contrastive(nn.Module):
    """Supervised contrastive parallel learning (SCPL): encoder f, and a projection p; the last one has a classifier.

        z_i = p_l(s_l) of sample i, divided by its norm        e_ia = exp(z_i . z_a / temperature)

        loss of sample i    -1/|P(i)| * sum over p in P(i) of log(e_ip / sum over a != i of e_ia)
        contrastive loss    the mean over all i for which P(i) is not empty             trains f_l and p_l
        cross-entropy       of head_L(s_L) with the class, in the last component L      trains f_L and head_L
        passed on           stop(s_l), the class numbers

    P(i) are the other samples of i's class in the mini-batch.

    Sources: Wang 2022; Ho et al., arXiv 2602.00062. The loss is L_out of Khosla et al. 2020, equation 2, and their
    section 3.1 describes the projection.
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
        positives = (y.unsqueeze(1) == y.unsqueeze(0)) & ~itself  # [N, N]: row i is P(i)
        log_e = (z @ z.T / TEMPERATURE).masked_fill(itself, -torch.inf)  # so that e_ii is 0
        minus_logs = torch.logsumexp(log_e, 1, keepdim=True) - log_e
        loss_of_sample = torch.where(positives, minus_logs, 0.0).sum(1) / positives.sum(1).clamp(min=1)
        loss = loss_of_sample.sum() / positives.any(1).sum().clamp(min=1)  # a sample without positives has loss 0
        return loss, s, y


class Greedy(nn.Module):
    """Decoupled greedy learning (DGL): encoder f, and a separate classifier.

        cross-entropy    of head_l(s_l) with the class     trains f_l and head_l
        passed on        stop(s_l), the class numbers

    Source: Belilovsky, Eickenberg and Oyallon 2020, algorithm 1.
    """

    def __init__(self, index):
        super().__init__()
        self.f = encoder(index)
        self.head = classifier(index)

    def losses(self, s, y):
        """y: class numbers [N]."""
        s = self.f(s)
        return functional.cross_entropy(self.head(s), y), s, y


def train_by_local_losses(components, mini_batches, to_above=None):
    """Train components that follow each other: the whole network, or one stage of it.

    mini_batches: gives (s, y) for the first of these components. to_above: the queue that takes (s, y) of the last one.
    """
    optimizers = optimizers_of(components)
    for s, y in mini_batches:
        losses = []
        for component in components:
            loss, s, y = component.losses(s, y)
            s, y = s.detach(), y.detach()
            losses.append(loss)
        # What goes up was computed before any update, so it does not matter who updates first. And the stage above can
        # begin while this one computes gradients. (alray sends s even before the losses are computed, and then y.)
        if to_above is not None:
            to_above.put((s.numpy(), y.numpy()))
        for loss, optimizer in zip(losses, optimizers, strict=True):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def optimizers_of(components):
    """One Adam for each component. It treats every parameter by itself, so AL needs no second one for g and h."""
    return [torch.optim.Adam(component.parameters(), lr=LEARNING_RATE) for component in components]


# --- Backpropagation ---


class Backpropagated(nn.Module):
    """Backpropagation (BP): encoder f; the last component has a classifier.

        cross-entropy    of head_L(s_L) with the class     trains f_1, ..., f_L and head_L

    Source: Rumelhart, Hinton and Williams 1986, Nature 323.
    """

    def __init__(self, index):
        super().__init__()
        self.f = encoder(index)
        if index == len(COMPONENTS) - 1:
            self.head = classifier(index)


def train_by_backpropagation(components, mini_batches):
    """Train the whole network. A component is updated only when the gradient has come back from the last one."""
    optimizers = optimizers_of(components)
    for s, y in mini_batches:
        for component in components:
            s = component.f(s)
        loss = functional.cross_entropy(components[-1].head(s), y)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()


# --- Mini-batches, and two stages in two processes ---


def read_mini_batches(steps):
    """Samples [N, 1, 16, 16] and class numbers [N] of each mini-batch. The seed shuffles them anew for each epoch."""
    data = open_data(DATA, seed=SEED, load=None)
    for batch in TrainBatches(data, seed=SEED, start_step=0, end_step=steps, workers=0):
        yield batch.samples, batch.labels


def receive_mini_batches(steps, from_below):
    """What the stage below has put into the queue."""
    for _ in range(steps):
        s, y = from_below.get()
        yield torch.from_numpy(s), torch.from_numpy(y)


def train_stage(stage, halves, steps, between):
    """What each of the two processes does. between: the queue from stage 0 to stage 1. Nothing goes the other way.

    While stage 1 has a mini-batch, stage 0 computes its gradients and goes on with the next mini-batch. It waits
    only when IN_FLIGHT of them are in the queue.
    """
    torch.set_num_threads(1)
    if stage == 0:
        train_by_local_losses(halves[0], read_mini_batches(steps), to_above=between)
    else:
        train_by_local_losses(halves[1], receive_mini_batches(steps, from_below=between))


def train_on_two_stages(components, steps):
    """Train in two new processes. The weights lie in shared memory, so this process has them at the end."""
    for component in components:
        component.share_memory()
    halves = components[:2], components[2:]  # any other cut gives the same weights
    between = torch.multiprocessing.get_context("spawn").Queue(maxsize=IN_FLIGHT)
    torch.multiprocessing.spawn(train_stage, args=(halves, steps, between), nprocs=2)


# --- What came of it ---


@torch.no_grad()
def accuracy(components):
    """Share of the test samples that the first l components of the network, given here, classify correctly.

    With AL a prediction goes up through f_1, ..., f_l, crosses b_l, and comes down through h_l, ..., h_1, which gives
    scores of the classes. With the other methods a classifier after f_l gives them.
    """
    test = open_data(DATA, seed=SEED, load=None).test
    s, labels = test.take(range(len(test)))
    for component in components:
        s = component.eval().f(s)
    if isinstance(components[-1], Associated):
        scores = components[-1].b(s)
        for component in reversed(components):
            scores = component.h(scores)
    else:
        scores = components[-1].head(s)
    return (scores.argmax(1) == labels).float().mean().item()


def weights_sha256(components):
    """SHA-256 over the name (such as `f.0.weight`) and the bytes of every parameter and buffer, in order."""
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
        train_by_local_losses(components, read_mini_batches(chosen.steps))

    # With AL and DGL, a network of the first components alone can predict as well.
    depths = [1, 2, 3, 4] if chosen.method in ("al", "dgl") else [4]
    for depth in depths:
        print(f"depth {depth}: test accuracy {accuracy(components[:depth]):.4f}")
    print(f"weights_sha256 {weights_sha256(components)}")


if __name__ == "__main__":
    main()
