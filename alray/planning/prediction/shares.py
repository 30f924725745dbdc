"""Shares: how many samples of each mini-batch every replica takes. They are fixed, or follow the replicas' speed (DBS).

Dynamic batch size: Ye et al., "DBS: Dynamic Batch Size for Distributed Deep Neural Network Training", arXiv 2007.11831.
The mini-batch keeps its size B; only the shares k_i change, so that every replica computes for the same time. The
gradients are averaged with the weights k_i / B. Their sum is the gradient of the mini-batch for any shares.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from alray.core.errors import PlanError
from alray.planning.prediction.partition import partition_uniform

Shares = tuple[int, ...]
"""Samples of a mini-batch that each replica takes, in order of rank: each at least 1, together the mini-batch."""


def first_shares(count: int, batch_size: int, given: Sequence[int] | None) -> Shares:
    """The shares with which a run of `count` replicas begins.

    Equal ones differ by at most one sample; the first replicas take the larger ones.

    Args:
        given: `replicas.shares` of the spec, whose checks have seen them; None: equal shares.

    Raises:
        PlanError: where there are fewer samples than replicas.
    """
    if given is not None:
        return tuple(given)
    _require_samples(count, batch_size)
    return partition_uniform(batch_size, count)


def ideal_shares(shares: Sequence[int], compute_s: Sequence[float | None], batch_size: int) -> tuple[float, ...]:
    """q_i: the shares with which all replicas would have computed for the same time; they add up to `batch_size`.

    A replica without a time (None or 0, because it is new or its clock measured nothing) keeps its share. The others
    divide the rest by the same formula.

    Args:
        shares: k_i, the shares so far.
        compute_s: t_i, the seconds that replica i spent computing with them, without waiting. With the share of the
            data d_i = k_i / B and the speed p_i = d_i / t_i: r_i = p_i / sum p, q_i = r_i B (arXiv 2007.11831, section
            3).
    """
    # Times are divided by the shortest one, so that no speed overflows and the largest time keeps its digits.
    shortest_s = min((time_s for time_s in compute_s if time_s), default=1.0)
    speeds = [
        share / batch_size / (time_s / shortest_s) if time_s else None
        for share, time_s in zip(shares, compute_s, strict=True)
    ]
    left = sum(share for share, speed in zip(shares, speeds, strict=True) if speed is not None)
    total = math.fsum(speed for speed in speeds if speed is not None)
    return tuple(
        float(share) if speed is None else speed / total * left for share, speed in zip(shares, speeds, strict=True)
    )


def integer_shares(ideal: Sequence[float], batch_size: int, least: int = 1) -> Shares:
    """The integers k_i >= `least` with sum k_i = `batch_size` that minimise sum (k_i - q_i)^2, where q_i is `ideal`.

    Ties go to the lower ranks. Raises PlanError where there are fewer samples than `least` for each replica.
    """
    _require_samples(len(ideal), batch_size, least)
    shares = [max(least, math.floor(share)) for share in ideal]
    # Why the result is the minimum. Let e_i = k_i - q_i. At every point of the loop below,
    #     (*)  e_i - e_j <= 1  for every i with k_i > least and every j.
    # At the start, k_i > least implies e_i <= 0, and every e_j > -1. Adding a sample where e is smallest gives e_j + 1,
    # and e_j + 1 - e_m <= 1 for every m because e_j <= e_m; in the other pairs e_j only grows. Taking a sample where e
    # is largest among the k_i > least gives e_i - 1, and e_m - (e_i - 1) <= 1 for every k_m > least because e_m <= e_i;
    # in the other pairs e_i only shrinks.
    # With the right sum, (*) is enough. Let x be any other choice. It has some x_i < k_i and some x_j > k_j, so
    # k_i > least, x_i - q_i <= e_i - 1 and x_j - q_j >= e_j + 1. Moving one sample of x from j to i changes its sum of
    # squares by 2 (x_i - q_i) + 1 - 2 (x_j - q_j) + 1 <= 2 (e_i - e_j) - 2 <= 0, and brings x closer to k. Such moves
    # end in k, so k is no worse than x.
    while (over := sum(shares) - batch_size) != 0:
        excess = [share - wanted for share, wanted in zip(shares, ideal, strict=True)]
        if over < 0:
            shares[min(range(len(shares)), key=excess.__getitem__)] += 1
        else:
            shares[
                max((rank for rank, share in enumerate(shares) if share > least), key=lambda rank: (excess[rank], rank))
            ] -= 1
    return tuple(shares)


def shares_of_part(shares: Sequence[int], samples: int) -> Shares:
    """Shares in the same proportion for a smaller mini-batch, such as the last one of an epoch.

    Raises PlanError where there are fewer samples than replicas.
    """
    whole = sum(shares)
    return tuple(shares) if samples == whole else integer_shares([share * samples / whole for share in shares], samples)


def rows_of(shares: Sequence[int], rank: int) -> slice:
    """The rows of a mini-batch that a replica takes; replica 0 takes the first ones."""
    first = sum(shares[:rank])
    return slice(first, first + shares[rank])


def _require_samples(count: int, batch_size: int, least: int = 1) -> None:
    if batch_size < count * least:
        raise PlanError(
            f"{count} replicas cannot share a mini-batch of {batch_size} samples",
            hint="use fewer replicas, a larger data.batch_size, or data.last_batch=drop",
            key="replicas.count",
        )
