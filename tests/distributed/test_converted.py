"""PyTorch's sharding: of a converted model on two ranks, and at a thousand that do not exist."""

from __future__ import annotations

import pytest

from tinytorch.distributed import Link, launch

torch = pytest.importorskip("torch")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_a_converted_model_under_ddp_and_fsdp_has_our_loss(kind: str) -> None:
    from tests.distributed import converted

    for found in launch(converted.losses, 2, kind):
        for theirs, ours in found:
            assert theirs == pytest.approx(ours, abs=1e-5)


def _mlp() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64))


def _step(model: torch.nn.Module) -> None:
    model(torch.randn(4, 64)).sum().backward()


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 1024, 8192])
def test_the_traffic_of_sharding_at_any_number_of_ranks(ranks: int) -> None:
    from torch.distributed.fsdp import fully_shard

    from tinytorch.distributed.fake import traffic_of

    nbytes = 4 * sum(p.numel() for p in _mlp().parameters())
    share = (ranks - 1) / ranks
    ddp = traffic_of(_mlp, _step, ranks, torch.nn.parallel.DistributedDataParallel)
    assert ddp.parameters * 4 == nbytes
    assert ddp.sent["all_reduce"] == pytest.approx(2 * share * nbytes)
    fsdp = traffic_of(_mlp, _step, ranks, fully_shard)
    # each weight is gathered, and its gradient scattered; a row that is cut is filled up
    assert set(fsdp.collectives) == {"all_gather", "reduce_scatter"}
    assert fsdp.sent["reduce_scatter"] >= share * nbytes
    rows = 64 + 256 + 1 + 1  # rank 0 has at least a row of each parameter
    assert fsdp.parameters * 4 <= nbytes / ranks + 4 * rows
    link = Link(latency=1e-5, bandwidth=1e10)
    assert ddp.collectives == {"all_reduce": 1}
    assert ddp.seconds(link) == pytest.approx(link.ring_all_reduce(nbytes, ranks))
