from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import tinytorch
from tinytorch import nn
from tinytorch.errors import DTypeError


def test_it_shares_a_tensors_memory_and_asks_for_a_gradient():
    source = tinytorch.ones(2)
    parameter = nn.Parameter(source)
    source.zero_()
    assert parameter.tolist() == [0, 0]
    with tinytorch.no_grad():
        parameter[1] = 5
    assert source.tolist() == [0, 5]
    assert parameter.requires_grad and not source.requires_grad
    assert parameter.is_leaf
    assert not nn.Parameter(source, requires_grad=False).requires_grad
    assert nn.Parameter().shape == (0,)


def test_a_parameter_of_a_computed_tensor_is_a_leaf():
    x = tinytorch.ones(2, requires_grad=True)
    parameter = nn.Parameter(x * 2)
    (parameter * 3).sum().backward()
    assert parameter.grad.tolist() == [3, 3] and x.grad is None


def test_arrays_and_lists_are_copied():
    array = np.ones(2)
    parameter = nn.Parameter(array)
    array[0] = 7
    assert parameter.tolist() == [1, 1]


def test_results_are_plain_tensors():
    parameter = nn.Parameter([1.0, 2.0])
    for result in (parameter * 2, parameter.detach(), parameter[0], parameter.reshape(2, 1)):
        assert type(result) is tinytorch.Tensor
    (parameter * parameter).sum().backward()
    assert parameter.grad.tolist() == [2, 4]


def test_arithmetic_with_numpy_keeps_the_gradient():
    parameter = nn.Parameter([2.0])
    for result in (parameter * np.float32(3), parameter + np.ones(1), np.ones(1) * parameter):
        assert result.requires_grad


def test_indexing_by_tensors():
    parameter = nn.Parameter(np.arange(6.0).reshape(3, 2))
    assert parameter[tinytorch.tensor([2, 0])].tolist() == [[4, 5], [0, 1]]
    with tinytorch.no_grad():
        parameter[tinytorch.tensor([0])] = tinytorch.tensor([[7.0, 8.0]])
    assert parameter[0].tolist() == [7, 8]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))])
@pytest.mark.parametrize("requires_grad", [True, False])
def test_copies(copied, requires_grad):
    parameter = nn.Parameter([1.0, 2.0], requires_grad=requires_grad)
    other = copied(parameter)
    assert type(other) is nn.Parameter
    assert other.requires_grad == requires_grad
    with tinytorch.no_grad():
        other.zero_()
    assert parameter.tolist() == [1, 2]


def test_a_deep_copy_of_a_model_has_no_gradients():
    net = nn.Linear(2, 1)
    net(tinytorch.ones(1, 2)).sum().backward()
    twin = copy.deepcopy(net)
    assert twin.weight.grad is None and net.weight.grad.tolist() == [[1, 1]]
    twin(tinytorch.ones(1, 2)).sum().backward()
    assert twin.weight.grad.tolist() == [[1, 1]]  # it was the sum of both


def test_integers_have_no_gradient():
    with pytest.raises(DTypeError, match="only floating-point tensors have gradients, not int64"):
        nn.Parameter(tinytorch.tensor([1, 2]))


def test_text():
    assert repr(nn.Parameter([1.0], requires_grad=False)) == "Parameter containing:\ntensor([1.])"


def test_a_parameter_can_share_memory() -> None:
    array = np.zeros(3, np.float32)
    parameter = nn.Parameter.from_numpy(array)
    array[1] = 5
    assert isinstance(parameter, nn.Parameter) and parameter.requires_grad
    assert parameter.tolist() == [0.0, 5.0, 0.0]
    with pytest.raises(TypeError, match="from_numpy takes a NumPy array, not list"):
        nn.Parameter.from_numpy([1.0])  # type: ignore[arg-type]
