from __future__ import annotations

import copy
import itertools
import math
import statistics
from collections.abc import Iterator

import numpy as np
import pytest
import torch

import tinytorch
from tinytorch import nn, optim
from tinytorch.bench.paired import student_quantile
from tinytorch.compression import Distiller, distillation_loss, distillation_step, soft_loss
from tinytorch.data import DataLoader, TensorDataset, datasets
from tinytorch.errors import ShapeError
from tinytorch.training import Trainer, accuracy

SEEDS = range(5)
LABELS = 300  # that the student sees; its teacher saw 1,438


def test_loss_and_gradient_are_pytorchs(rng: np.random.Generator) -> None:
    a, b = (3 * rng.standard_normal((5, 4), dtype=np.float32) for _ in range(2))
    labels = rng.integers(0, 4, 5)
    ours = tinytorch.tensor(a).requires_grad_()
    loss = distillation_loss(
        ours, tinytorch.tensor(b), tinytorch.tensor(labels), temperature=3.0, alpha=0.7
    )
    loss.backward()
    theirs = torch.tensor(a, requires_grad=True)
    F = torch.nn.functional
    soft = F.kl_div(
        F.log_softmax(theirs / 3, 1), F.softmax(torch.tensor(b) / 3, 1), reduction="batchmean"
    )
    expected = 0.7 * 9 * soft + 0.3 * F.cross_entropy(theirs, torch.tensor(labels))
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-4, atol=1e-6)


@pytest.fixture
def numpy_backend() -> Iterator[None]:
    with tinytorch.using_backend("numpy"):
        yield


def mlp(*sizes: int) -> nn.Sequential:
    return nn.Sequential(
        *[x for a, b in itertools.pairwise(sizes) for x in (nn.Linear(a, b), nn.ReLU())][:-1]
    )


def fit(
    model: nn.Module, data: TensorDataset, seed: int, epochs: int, **teaching: object
) -> Trainer:
    optimizer = optim.Adam(model.parameters(), lr=5e-3)
    kind = Distiller if teaching else Trainer
    run = kind(model, nn.CrossEntropyLoss(), optimizer, progress="quiet", **teaching)
    run.fit(DataLoader(data, 32, shuffle=True, generator=seed), epochs=epochs)
    return run


def test_without_a_weight_the_teacher_changes_nothing() -> None:
    tinytorch.manual_seed(0)
    data = TensorDataset(tinytorch.randn(64, 6), tinytorch.randint(0, 3, (64,)))
    alone = mlp(6, 8, 3)
    taught, teacher = copy.deepcopy(alone), mlp(6, 8, 3)
    fit(alone, data, 1, 2)
    run = fit(taught, data, 1, 2, teacher=teacher, alpha=0.0)
    for a, b in zip(alone.parameters(), taught.parameters(), strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-6, atol=1e-7)
    assert not teacher.training and all(p.grad is None for p in teacher.parameters())
    x, y = data.tensors
    hard = nn.functional.cross_entropy(taught.eval()(x), y).item()
    assert run.evaluate(DataLoader(data, 16))["loss"] == pytest.approx(hard, rel=1e-5)


def test_who_answers_as_the_teacher_does_has_nothing_to_learn() -> None:
    tinytorch.manual_seed(0)
    student = mlp(6, 8, 3)
    teacher = copy.deepcopy(student).eval()
    x, y = tinytorch.randn(16, 6), tinytorch.randint(0, 3, (16,))
    optimizer = optim.SGD(student.parameters(), lr=1.0)
    assert distillation_step(student, teacher, optimizer, x, y, alpha=1.0).item() < 1e-6
    for a, b in zip(student.parameters(), teacher.parameters(), strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), atol=1e-6)
    distillation_step(student, teacher, optimizer, x, y, alpha=0.5)
    assert (
        np.abs(student[0].weight.detach().numpy() - teacher[0].weight.detach().numpy()).max() > 1e-3
    )


def test_what_is_wrong_is_said() -> None:
    x, y = tinytorch.ones(2, 3), tinytorch.tensor([0, 1])
    with pytest.raises(ValueError, match="temperature must be above 0 and finite, got 0"):
        distillation_loss(x, x, y, temperature=0)
    with pytest.raises(ValueError, match=r"from 0 to 1, not 1\.5"):
        distillation_loss(x, x, y, alpha=1.5)
    with pytest.raises(ShapeError, match=r"same classes, .* \(2, 3\) and \(2, 4\)"):
        distillation_loss(x, tinytorch.ones(2, 4), y)
    with pytest.raises(ShapeError, match=r"\(n, classes\): \(1, 2, 3\)"):  # tokens are no samples
        soft_loss(x[None], x[None], 1.0)


@pytest.mark.slow
@pytest.mark.usefixtures("numpy_backend")
def test_a_student_with_a_teacher_beats_its_twin_over_five_seeds() -> None:
    """Real digits that neither saw; same start, same images in the same order. Its teacher has 25
    times as many parameters, and saw the labels of all training images, the student of a fifth."""
    images, labels = datasets.digits("train", flatten=True).tensors
    unseen, right = datasets.digits("test", flatten=True).tensors
    tinytorch.manual_seed(0)
    teacher = mlp(64, 256, 128, 10)
    fit(teacher, TensorDataset(images, labels), 0, 8)
    differences = []
    for seed in SEEDS:
        pick = np.random.default_rng(seed).permutation(len(labels))[:LABELS]
        data = TensorDataset(
            tinytorch.tensor(images.numpy()[pick]), tinytorch.tensor(labels.numpy()[pick])
        )
        found = []
        for teaching in ({"teacher": teacher, "temperature": 4.0, "alpha": 0.9}, {}):
            tinytorch.manual_seed(seed)
            student = mlp(64, 24, 10)
            fit(student, data, seed, 60, **teaching)
            with tinytorch.no_grad():
                found.append(float(accuracy(student.eval()(unseen), right)))
        differences.append(found[0] - found[1])
    reach = student_quantile(0.975, len(SEEDS) - 1) * statistics.stdev(differences)
    low = statistics.fmean(differences) - reach / math.sqrt(len(SEEDS))
    assert min(differences) > 0 and low > 0, differences
