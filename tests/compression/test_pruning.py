from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.utils import prune

import tinytorch
from tinytorch import nn, optim
from tinytorch.compression import (
    GradualPruning,
    apply_masks_,
    cubic_sparsity,
    magnitude_masks,
    prune_magnitude_,
    sparsity,
)
from tinytorch.data import DataLoader, TensorDataset
from tinytorch.training import Trainer


def net(seed: int = 0) -> nn.Sequential:
    tinytorch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))


def in_torch(model: nn.Module) -> torch.nn.Module:
    other = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    state = {k: torch.tensor(v.detach().numpy()) for k, v in model.state_dict().items()}
    other.load_state_dict(state)
    return other


@pytest.mark.parametrize("scope", ["global", "layer"])
def test_masks_are_pytorchs(scope: str) -> None:
    model = net()
    other = in_torch(model)
    pairs = [(other[0], "weight"), (other[2], "weight")]
    if scope == "global":
        prune.global_unstructured(pairs, prune.L1Unstructured, amount=0.6)
    else:
        for module, name in pairs:
            prune.l1_unstructured(module, name, amount=0.6)
    masks = prune_magnitude_(model, 0.6, scope=scope)
    for i in (0, 2):
        mask, weight = masks[f"{i}.weight"].numpy(), model[i].weight.detach().numpy()
        np.testing.assert_array_equal(mask, other[i].weight_mask.bool().numpy())
        np.testing.assert_array_equal(weight, other[i].weight.detach().numpy())
    assert sparsity(model) == {name: np.mean(~mask.numpy()) for name, mask in masks.items()}


def test_equal_weights_are_counted_exactly() -> None:
    model = nn.Linear(10, 10)
    model.weight.detach().fill_(1.0)
    prune_magnitude_(model, 0.37)
    assert sparsity(model) == {"weight": 0.37}


def trainer(
    callback: GradualPruning, seed: int = 0, progress: str = "quiet"
) -> tuple[Trainer, DataLoader]:
    model = net(seed)
    x = tinytorch.tensor(np.random.default_rng(0).standard_normal((64, 6), dtype=np.float32))
    data = TensorDataset(x, (x.sum(1) > 0).long())
    loader = DataLoader(data, batch_size=16, shuffle=True, generator=1)
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loss = nn.CrossEntropyLoss()
    return Trainer(model, loss, optimizer, callbacks=[callback], progress=progress), loader


def share(model: nn.Module) -> float:
    masked = [p.detach().numpy() == 0 for p in model.parameters() if p.ndim > 1]
    return float(np.concatenate([m.ravel() for m in masked]).mean())


class Watch(GradualPruning):
    def on_step_end(self, trainer: Trainer, loss: float) -> None:
        before = {k: ~m.numpy() for k, m in self.masks.items()}
        super().on_step_end(trainer, loss)
        for name, gone in before.items():  # what is gone stays gone
            assert not trainer.model.get_parameter(name).detach().numpy()[gone].any()
        self.seen = [*getattr(self, "seen", []), share(trainer.model)]


def test_the_schedule_is_kept_while_momentum_pushes() -> None:
    callback = Watch(0.8, begin=2, end=10, every=2, initial=0.1)
    run, loader = trainer(callback)
    run.fit(loader, epochs=4)
    expected = [cubic_sparsity(s - s % 2, 0.8, begin=2, end=10, initial=0.1) for s in range(1, 17)]
    np.testing.assert_allclose(callback.seen, expected, atol=0.5 / 144)
    assert callback.seen[-1] == pytest.approx(0.8, abs=0.5 / 144)


def test_what_goes_at_step_0_is_gone_in_the_first_step() -> None:
    callback = Watch(0.8, begin=0, end=100, every=10, initial=0.5)
    run, loader = trainer(callback)
    run.fit(loader, epochs=1)
    np.testing.assert_allclose(callback.seen, 0.5, atol=0.5 / 144)


def test_a_run_goes_on_from_a_checkpoint_to_the_same_bits(tmp_path: Path) -> None:
    whole, loader = trainer(GradualPruning(0.7, end=12, every=3))
    whole.fit(loader, epochs=4)
    first, loader = trainer(GradualPruning(0.7, end=12, every=3))
    first.fit(loader, epochs=2)
    first.save(tmp_path / "run.safetensors")
    second, loader = trainer(GradualPruning(0.7, end=12, every=3), seed=5)
    second.load(tmp_path / "run.safetensors")
    second.fit(loader, epochs=4)
    for a, b in zip(whole.model.parameters(), second.model.parameters(), strict=True):
        np.testing.assert_array_equal(a.detach().numpy(), b.detach().numpy())


def test_training_that_pruning_does_not_fit_into_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run, loader = trainer(GradualPruning(0.8, end=100), progress="plain")
    run.fit(loader, epochs=1)
    assert (
        "for 4 steps, before pruning ends at step 100: less than 80% of" in capsys.readouterr().out
    )
    late = GradualPruning(0.8, end=3)
    run.callbacks.append(late)
    with pytest.raises(ValueError, match="is to end at step 3, and 4 are done"):
        run.fit(loader, epochs=2)
    whole, loader = trainer(GradualPruning(0.8, end=3), progress="plain")
    whole.fit(loader, epochs=1)
    whole.fit(loader, epochs=2)
    assert "before pruning ends" not in capsys.readouterr().out


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(ValueError, match=r"from 0 to 1, not 1.5"):
        magnitude_masks(net(), 1.5)
    with pytest.raises(ValueError, match=r"0.weight must be bool \(16, 6\), not int64 \(16, 6\)"):
        apply_masks_(net(), {"0.weight": tinytorch.ones(16, 6, dtype=tinytorch.int64)})
    with pytest.raises(ValueError, match="scope must be 'global' or 'layer', got 'all'"):
        magnitude_masks(net(), 0.5, scope="all")
    with pytest.raises(ValueError, match=r"no weight '0.bias'; there are 0.weight, 2.weight"):
        magnitude_masks(net(), 0.5, names=["0.bias"])
    with pytest.raises(ValueError, match="ReLU has no weights to prune"):
        magnitude_masks(nn.ReLU(), 0.5)
    with pytest.raises(ValueError, match="got begin 5, end 5, every 10"):
        GradualPruning(0.5, begin=5, end=5)
    with pytest.raises(ValueError, match=r"got 0.6 and 0.5"):
        GradualPruning(0.5, end=5, initial=0.6)
