"""Two networks of the kind that users write, for `benchmarks/exported.py`."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """A residual block: `[N, C, H, W] -> [N, out, H / stride, W / stride]`."""

    def __init__(self, width: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(width, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.skip = nn.Conv2d(width, out, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        return functional.relu(y + self.skip(x))


class ResNet(nn.Module):
    """A small ResNet: `[N, 3, H, W] -> [N, 10]`."""

    def __init__(self, width: int = 20) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        self.layer1, self.layer2 = Block(width, width, 1), Block(width, 2 * width, 2)
        self.layer3 = Block(2 * width, 2 * width, 2)
        self.fc = nn.Linear(2 * width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layer1(functional.relu(self.bn(self.conv(x))))
        scores: torch.Tensor = self.fc(self.layer3(self.layer2(x)).mean((2, 3)))
        return scores


class Layer(nn.Module):
    """A layer of GPT-2: `[N, T, width] -> [N, T, width]`."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.mix(self.ln_1(x)).chunk(3, dim=2)
        query, key, value = (each.unflatten(2, (self.heads, -1)).transpose(1, 2) for each in parts)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        result: torch.Tensor = x + self.mlp(self.ln_2(x))
        return result


class Gpt(nn.Module):
    """A small GPT-2 of bytes: `[N, T] -> [N, T, 256]`."""

    def __init__(self, width: int = 32, context: int = 32) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(256, width), nn.Embedding(context, width)
        self.layers = nn.ModuleList(Layer(width, 4) for _ in range(4))
        self.ln_f, self.lm_head = nn.LayerNorm(width), nn.Linear(width, 256, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.wte(tokens) + self.wpe(torch.arange(0, tokens.size(1), device=tokens.device))
        for layer in self.layers:
            x = layer(x)
        scores: torch.Tensor = self.lm_head(self.ln_f(x))
        return scores
