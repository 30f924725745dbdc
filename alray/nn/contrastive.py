"""Supervised contrastive losses over the samples of one mini-batch.

For anchor i, A(i) is every other sample of the mini-batch and P(i) the positives, those of A(i) with i's label. Codes z
have norm 1, and e_a = exp(z_i . z_a / temperature). Both losses are means over the anchors that have a positive: the
others are left out, and a mini-batch without any has loss 0 and gradients that are zero.

Nothing here has a size that depends on the labels, so that costs can be counted on the meta device.
"""

from __future__ import annotations

import math

import torch


def supervised_contrastive(codes: torch.Tensor, labels: torch.Tensor, *, temperature: float) -> torch.Tensor:
    """The mean over anchors of `-1/|P(i)| sum over p in P(i) of log(e_p / sum over a in A(i) of e_a)`.

    codes: `[N, D]`, of norm 1; labels: `[N]`, class numbers. Returns a scalar, in nats.
    Source: Khosla et al. 2020 (Supervised Contrastive Learning), equation 2, L_out, with one view per sample.
    """
    logits, positives = _pairs(codes, labels, temperature)
    losses = torch.logsumexp(logits, 1, keepdim=True) - logits
    return _mean_over_anchors(losses, positives)


def debiased_supervised_contrastive(
    codes: torch.Tensor, labels: torch.Tensor, *, temperature: float, class_prior: float
) -> torch.Tensor:
    """The mean over anchors of `-1/|P(i)| sum over p in P(i) of log(e_p / (e_p + n g))`.

        g = max((mean over u of e_u - class_prior * mean over v of e_v) / (1 - class_prior), exp(-1 / temperature))

    codes: `[N, D]`, of norm 1; labels: `[N]`, class numbers; class_prior: tau+, the share of one class among the data,
    above 0 and below 1. Returns a scalar, in nats.

    The n = N - 2 samples u are those of A(i) except p. They are drawn from all the data, hence some are of i's own
    class: the loss above pushes them away, this one takes them out of the denominator by the estimate that the
    positives v in P(i) give. With a prior of 0 it would be the loss above; the bound of g is the least e_u can be.
    Source: Chuang et al. 2020 (Debiased Contrastive Learning), equations 7 and 8, whose one positive per anchor is
    each of P(i) in turn here, averaged as in L_out.
    """
    logits, positives = _pairs(codes, labels, temperature)
    count = len(codes) - 2
    # Relative to the largest e_a of each anchor, so that nothing overflows at low temperatures. It cancels out.
    largest = logits.max(1, keepdim=True).values.detach()
    relative = torch.exp(logits - largest)
    others = relative.sum(1, keepdim=True) - relative
    own_class = _mean_over_positives(relative, positives).unsqueeze(1)
    estimate = (others - count * class_prior * own_class) / (1.0 - class_prior)
    log_bound = (math.log(count) if count > 0 else -math.inf) - 1.0 / temperature - largest
    # The clamp is for the values not chosen: their gradient must be 0, not 0 times infinity.
    log_estimate = estimate.clamp(min=torch.finfo(codes.dtype).tiny).log()
    log_negatives = torch.where(estimate > log_bound.exp(), log_estimate, log_bound)
    losses = torch.logaddexp(logits - largest, log_negatives) + largest - logits
    return _mean_over_anchors(losses, positives)


def _pairs(codes: torch.Tensor, labels: torch.Tensor, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    """`z_i . z_a / temperature` `[N, N]`, lowest on the diagonal so that `exp` is 0 there; and which are positives."""
    same = torch.eye(len(codes), dtype=torch.bool, device=codes.device)
    # Not minus infinity: where there is no other sample at all, gradients would be infinity minus infinity.
    logits = (codes @ codes.T / temperature).masked_fill(same, torch.finfo(codes.dtype).min)
    return logits, (labels.unsqueeze(1) == labels.unsqueeze(0)) & ~same


def _mean_over_positives(values: torch.Tensor, positives: torch.Tensor) -> torch.Tensor:
    """`[N, N] -> [N]`; 0 where an anchor has no positive."""
    return torch.where(positives, values, 0.0).sum(1) / positives.sum(1).clamp(min=1)


def _mean_over_anchors(losses: torch.Tensor, positives: torch.Tensor) -> torch.Tensor:
    return _mean_over_positives(losses, positives).sum() / positives.any(1).sum().clamp(min=1)
