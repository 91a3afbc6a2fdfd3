"""`cuda`, `mps`, `xpu`, `accelerator` and `backends`: what they answer where there is only a CPU.

Questions have answers ("is it available?" no; "how many?" 0), requests that only a GPU could serve
are refused, and what merely sets something up for one does nothing.
"""

from __future__ import annotations

import contextlib
from types import ModuleType
from typing import Any

from tinytorch.compat import amp
from tinytorch.compat.devices import DeviceError


def _nothing(*args: Any, **options: Any) -> None:
    """Do nothing: there is no GPU to do it to."""


def _false(*args: Any, **options: Any) -> bool:
    """False."""
    return False


def _zero(*args: Any, **options: Any) -> int:
    """0."""
    return 0


def _context(*args: Any, **options: Any) -> Any:
    """A block in which nothing is different."""
    return contextlib.nullcontext()


#: What any accelerator module answers: name -> value.
_ANSWERS: dict[str, Any] = {
    **dict.fromkeys(("is_available", "is_initialized", "is_bf16_supported", "is_built"), _false),
    **dict.fromkeys(("is_current_stream_capturing", "is_tf32_supported"), _false),
    **dict.fromkeys(
        ("manual_seed", "manual_seed_all", "seed", "seed_all", "empty_cache"), _nothing
    ),
    **dict.fromkeys(("synchronize", "init", "ipc_collect", "reset_peak_memory_stats"), _nothing),
    **dict.fromkeys(("reset_max_memory_allocated", "reset_max_memory_cached"), _nothing),
    **dict.fromkeys(
        ("reset_accumulated_memory_stats", "set_per_process_memory_fraction"), _nothing
    ),
    **dict.fromkeys(("memory_allocated", "max_memory_allocated", "memory_reserved"), _zero),
    **dict.fromkeys(("max_memory_reserved", "memory_cached", "max_memory_cached"), _zero),
    **dict.fromkeys(("device_count", "current_allocated_memory", "driver_allocated_memory"), _zero),
    "memory_stats": dict,
    "get_arch_list": list,
    "amp": amp,
}


class Accelerator(ModuleType):
    """A module of an accelerator that this machine is treated as not having."""

    def __init__(self, name: str, **answers: Any) -> None:
        super().__init__(f"tinytorch.{name}", f"`torch.{name}` of a machine without one.")
        vars(self).update(_ANSWERS | answers)

    def __getattr__(self, name: str) -> Any:
        path = f"torch.{self.__name__.partition('.')[2]}"
        if name.startswith("__"):
            raise AttributeError(f"module {path} has no attribute {name!r}")

        class Refused:
            """A name of PyTorch's that needs a GPU: it can be imported, not called."""

            def __new__(cls, *args: Any, **options: Any) -> Any:
                raise DeviceError(
                    f"{path}.{name} needs a GPU and TinyTorch computes on the CPU: guard it by "
                    f"`if torch.cuda.is_available():`"
                )

        return Refused


class Flags(ModuleType):
    """A module of settings, such as `backends.cudnn`: any can be set, and none has an effect."""

    def __init__(self, name: str, **answers: Any) -> None:
        super().__init__(f"tinytorch.{name}", f"`torch.{name}`: settings without an effect here.")
        vars(self).update(is_available=_false, is_built=_false, version=_nothing, flags=_context)
        vars(self).update(answers)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        raise AttributeError(
            f"{self.__name__.replace('tinytorch', 'torch', 1)}.{name} sets up a GPU or a library "
            f"that TinyTorch does not use: leave it out"
        )


class NoDevice:
    """`torch.cuda.device(i)` and `torch.cuda.stream(s)`: a block in which nothing is different."""

    def __init__(self, device: Any = None) -> None:
        self.idx = -1

    def __enter__(self) -> NoDevice:
        return self

    def __exit__(self, *error: Any) -> None:
        """Nothing was changed."""


def _refuse_current(*args: Any) -> Any:
    raise DeviceError(
        "there is no current GPU: guard this by `if torch.cuda.is_available():`; "
        "torch.device('cpu') is the device there is"
    )


cuda = Accelerator(
    "cuda",
    amp=ModuleType("tinytorch.cuda.amp"),
    device=NoDevice,
    stream=NoDevice,
    current_device=_refuse_current,
    get_device_name=_refuse_current,
    get_device_properties=_refuse_current,
    get_device_capability=_refuse_current,
    set_device=_nothing,
)
cuda.amp.autocast = amp._CudaAutocast
cuda.amp.GradScaler = amp.GradScaler
cuda.amp.custom_fwd = cuda.amp.custom_bwd = amp.custom_fwd
mps = Accelerator("mps")
xpu = Accelerator("xpu")
accelerator = Accelerator(
    "accelerator", current_accelerator=lambda check_available=False: None, device_index=NoDevice
)
cpu = Accelerator(
    "cpu",
    amp=amp,
    is_available=lambda: True,
    device_count=lambda: 1,
    current_device=lambda: "cpu",
)

cudnn = Flags("backends.cudnn", enabled=False, benchmark=False, deterministic=False)
mps_backend = Flags("backends.mps")
cuda_backend = Flags("backends.cuda", sdp_kernel=_context)
for _name in ("matmul", "cufft_plan_cache"):
    vars(cuda_backend)[_name] = Flags(
        f"backends.cuda.{_name}", allow_tf32=False, allow_fp16_reduced_precision_reduction=False
    )
for _name in ("flash", "mem_efficient", "math", "cudnn"):
    vars(cuda_backend)[f"enable_{_name}_sdp"] = _nothing
    vars(cuda_backend)[f"{_name}_sdp_enabled"] = _false
mkldnn = Flags("backends.mkldnn")
mkl = Flags("backends.mkl")
openmp = Flags("backends.openmp")
opt_einsum = Flags("backends.opt_einsum", enabled=False, strategy=None)


def get_device_module(device: Any = None) -> Any:
    """The module of a device: `cpu`."""
    return cpu
