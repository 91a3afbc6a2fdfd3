"""What the eleventh module's parts do inside the package."""

import threading

import numpy as np

import tinytorch
from tinytorch import backends
from tinytorch.backends import ComputeBackend, find_backend, reference
from tinytorch.errors import BackendError
from tinytorch.op import OPS, Op
from tinytorch.state import current_backend
from tito.checks import check, close, equal, raises


class Few(ComputeBackend):
    """A backend of two kernels; the second promises too much."""

    def matmul(self, a, b):
        return np.matmul(a, b)

    def conv2d(self, x, w, b=None, **params):
        return reference.conv2d(x, w, b, **params)

    def relu(self, a):
        return np.float64(1) * a


def test_backends_have_names() -> None:
    """a backend is registered, made once, and found by its name"""
    tinytorch.register_backend("few of 11", Few, replace=True)
    try:
        equal(type(find_backend("few of 11")) is Few, True)
        equal(find_backend("few of 11") is find_backend("few of 11"), True)
        raises(BackendError, tinytorch.register_backend, "few of 11", Few)
    finally:  # what a test registers is gone after it
        backends._factories.pop("few of 11")
        backends._instances.pop("few of 11", None)
    raises(BackendError, find_backend, "few of 11", match="naive")


def test_the_choice_belongs_to_a_block() -> None:
    """a block chooses a backend for its thread, and leaves nothing behind"""
    before, seen = current_backend(), []
    with tinytorch.using_backend("numpy"):
        equal(type(current_backend()).__name__, "NumpyBackend")
        thread = threading.Thread(target=lambda: seen.append(current_backend()))
        thread.start()
        thread.join()
        with tinytorch.using_backend("naive"):
            equal(type(current_backend()).__name__, "NaiveBackend")
        equal(type(current_backend()).__name__, "NumpyBackend")
    equal(current_backend() is before, True)
    equal(seen[0] is tinytorch.get_backend(), True)


def test_kernels_are_found_and_held_to_their_promise() -> None:
    """every op finds a kernel, and one that returns a wrong dtype is named"""
    with tinytorch.using_backend(Few()):
        x = tinytorch.tensor([[1.0, -2.0]])
        close((x @ x.T).tolist(), [[5.0]])
        close(x.exp().sum().item(), 2.853617, rtol=1e-4)
        raises(BackendError, x.relu, match="relu")
    cube = Op("cube", "a", "elementwise", None, None, None, scalar=lambda a: a * a * a)
    equal(reference.find_kernel(cube)(np.float32([2.0])).tolist(), [8.0])
    raises(NotImplementedError, Few().find_kernel, Op("odd", "a", "odd", None, None, None))


def test_a_convolution_is_a_product() -> None:
    """the numpy backend runs conv2d and its gradients on your rows, and agrees with the loops"""
    rng = np.random.default_rng(11)
    x, w = rng.normal(size=(2, 4, 6, 5)), rng.normal(size=(6, 2, 3, 2))
    shape = {"stride": (2, 1), "padding": (1, 1), "dilation": (1, 2), "groups": 2}
    found = {}
    for name in ("naive", "numpy"):
        with tinytorch.using_backend(name):
            a = tinytorch.tensor(x, requires_grad=True)
            b = tinytorch.tensor(w, requires_grad=True)
            out = tinytorch.apply(OPS["conv2d"], a, b, **shape)
            (out * out).sum().backward()
            found[name] = (out.detach().numpy(), a.grad.numpy(), b.grad.numpy())
    for mine, loops in zip(found["numpy"], found["naive"], strict=True):
        check(np.allclose(mine, loops), "numpy and naive differ")
