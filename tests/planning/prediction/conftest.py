"""Costs small enough to reckon with by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from alray.planning.prediction.costs import ComponentCosts, Costs

# Milliseconds of F, B and U; together 35, 35, 25 and 50.
TIMES_MS = ((10, 20, 5), (10, 20, 5), (10, 10, 5), (20, 20, 10))


@pytest.fixture
def make_costs() -> Callable[..., Costs]:
    """`make_costs(scale=1.0, output_bytes=0, ...)`: four components, by default with messages that take no time."""

    def make(
        *,
        scale: float = 1.0,
        output_bytes: int = 0,
        edge_latency_s: float = 0.0,
        edge_s_per_byte: float = 0.0,
        threads: int = 1,
        action_overhead_s: float = 0.0,
    ) -> Costs:
        components = tuple(
            ComponentCosts(
                name=f"component {index}",
                forward_s=forward * 1e-3 * scale,
                backward_s=backward * 1e-3 * scale,
                update_s=update * 1e-3 * scale,
                infer_s=2e-3 * scale,
                route_s=1e-3 * scale,
                parameters=(100, 200, 300, 1000)[index],
                parameter_bytes=4 * (100, 200, 300, 1000)[index],
                gradient_bytes=4 * (100, 200, 300, 1000)[index],
                optimizer_bytes=8 * (100, 200, 300, 1000)[index],
                activation_bytes=10_000 * (index + 1),
                output_bytes=output_bytes * (index + 1),
                infer_bytes=output_bytes * (index + 1),
                route_bytes=output_bytes,
                output_shape=(8, 4, 4),
            )
            for index, (forward, backward, update) in enumerate(TIMES_MS)
        )
        return Costs(
            source="given",
            device="cpu",
            threads=threads,
            batch_size=64,
            components=components,
            edge_latency_s=edge_latency_s,
            edge_s_per_byte=edge_s_per_byte,
            action_overhead_s=action_overhead_s,
        )

    return make
