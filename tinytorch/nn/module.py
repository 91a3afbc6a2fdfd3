"""`Module`: parameters, buffers and other modules as attributes, and a `forward` that uses them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Self

from tinytorch.absent import add_foreign_names, conversion_target
from tinytorch.autograd import no_grad
from tinytorch.dtypes import DType
from tinytorch.errors import DTypeError
from tinytorch.history import structure, write_clock
from tinytorch.nn import state
from tinytorch.nn.hooks import Hook, Hooks, RemovableHandle
from tinytorch.nn.parameter import Parameter
from tinytorch.nn.state import IncompatibleKeys
from tinytorch.nn.store import Store
from tinytorch.nn.summary import format_module
from tinytorch.replay import no_tensor
from tinytorch.tensor import Tensor


class Module:
    """A model or a part of one. Derive, assign what it is made of, and write `forward`.

        class MLP(Module):
            def __init__(self):
                super().__init__()
                self.hidden = Linear(64, 32)
                self.out = Linear(32, 10)

            def forward(self, x):
                return self.out(relu(self.hidden(x)))

    What an attribute is, is told by its type: a `Parameter` is trained, a `Module` is a child. A
    tensor that is neither trained nor temporary is registered by `register_buffer`. A module keeps
    no other tables, so nothing breaks if `super().__init__()` is forgotten; `_parameters`,
    `_buffers` and `_modules` are views of the attributes.

    Attributes:
        training: True in training mode, False in evaluation mode; `train()` and `eval()` set it.
    """

    training: bool = True
    _persistent: Mapping[str, bool] = MappingProxyType({})  # of buffers: does state_dict have it?
    _hooks: Hooks | None = None
    _codes: tuple[str, ...] = ()  # buffers that have a meaning in their own dtype only

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The result. Override."""
        raise NotImplementedError(
            f"{type(self).__name__} has no forward: write `def forward(self, x): ...` in it"
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            if self._hooks is None:
                return self.forward(*args, **kwargs)
            return self._hooks.call(self, args, kwargs)
        except AttributeError as error:
            raise no_tensor.explained_of_layer(self, args, kwargs, error) from None

    # -- what it is made of ------------------------------------------------------------------------

    @property
    def _parameters(self) -> Store:
        return Store(self, lambda _, v: isinstance(v, Parameter), self.register_parameter)

    @property
    def _buffers(self) -> Store:
        def belongs(name: str, value: Any) -> bool:
            return name in self._persistent and isinstance(value, Tensor)

        return Store(self, belongs, self.register_buffer)

    @property
    def _modules(self) -> Store:
        return Store(self, lambda _, v: isinstance(v, Module), self.add_module)

    @_modules.setter
    def _modules(self, modules: Mapping[str, Module]) -> None:
        given = dict(modules)
        self._modules.clear()
        for name, module in given.items():
            self.add_module(name, module)

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The modules that are attributes of this one, each once, with their (first) names."""
        seen: set[int] = set()
        for name, module in self.own_modules():
            if id(module) not in seen:
                seen.add(id(module))
                yield name, module

    def children(self) -> Iterator[Module]:
        """The modules that are attributes of this one, each once."""
        return (module for _, module in self.named_children())

    def named_modules(
        self, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """This module and all below it, parents first, with dotted names.

        Each child's name is its parent's, a dot and its own. Children come in the order of
        `own_modules`, each followed by all that is below it.

        Args:
            prefix: the name of this module; "" unless given, and then no dot follows it.
            remove_duplicate: give a module that is reached by several names only once.

        Raises:
            ValueError: a module contains itself and is to be given by all its names, which have no
                end. (Given only once, it ends.)
        """
        seen: set[int] = set()
        stack: list[tuple[str, Module, tuple[int, ...]]] = [(prefix, self, ())]
        while stack:
            name, module, above = stack.pop()
            if remove_duplicate and id(module) in seen:
                continue
            if id(module) in above:
                raise ValueError(f"module {name!r} contains itself: {type(module).__name__}")
            seen.add(id(module))
            yield name, module
            dot, path = f"{name}." if name else "", (*above, id(module))
            stack += [(dot + n, m, path) for n, m in module.own_modules()][::-1]

    def modules(self) -> Iterator[Module]:
        """This module and all below it, each once, parents first."""
        return (module for _, module in self.named_modules())

    def own_modules(self) -> list[tuple[str, Module]]:
        """The modules that are attributes of this one, with their names; one may have several."""
        return [(k, v) for k, v in vars(self).items() if isinstance(v, Module)]

    def own_parameters(self) -> list[tuple[str, Parameter]]:
        """The parameters that are attributes of this very module, with their names."""
        return [(k, v) for k, v in vars(self).items() if isinstance(v, Parameter)]

    def own_buffers(self, persistent: bool = False) -> list[tuple[str, Tensor]]:
        """The buffers of this very module, with their names.

        Args:
            persistent: only those that belong to the `state_dict`.
        """
        names = [name for name, kept in self._persistent.items() if kept or not persistent]
        return [(k, v) for k in names if (v := vars(self).get(k)) is not None]

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """All parameters with dotted names, a module's own before its children's.

        Args:
            prefix: is put before all names.
            recurse: also those of the modules below.
            remove_duplicate: give a shared parameter only once, by its first name.
        """
        return self._named(Module.own_parameters, prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """All parameters, each once: what an optimizer takes."""
        return (parameter for _, parameter in self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """All buffers with dotted names; the arguments are those of `named_parameters`."""
        return self._named(Module.own_buffers, prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """All buffers, each once."""
        return (buffer for _, buffer in self.named_buffers(recurse=recurse))

    def _named(
        self,
        own: Callable[[Module], list[tuple[str, Any]]],
        prefix: str,
        recurse: bool,
        remove_duplicate: bool,
    ) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        modules = self.named_modules(prefix, remove_duplicate) if recurse else [(prefix, self)]
        for path, module in modules:
            for name, tensor in own(module):
                if not (remove_duplicate and id(tensor) in seen):
                    seen.add(id(tensor))
                    yield f"{path}.{name}" if path else name, tensor

    def get_submodule(self, target: str) -> Module:
        """The module of a dotted name; "" is this module.

        Raises:
            AttributeError: there is none; the message lists those there are where the path ends.
        """
        module = self
        for name in target.split(".") if target else []:
            children = dict(module.own_modules())
            if name not in children:
                raise AttributeError(
                    f"{type(self).__name__} has no module {target!r}: {type(module).__name__} has "
                    f"{', '.join(children) or 'no modules'}"
                )
            module = children[name]
        return module

    def get_parameter(self, target: str) -> Parameter:
        """The parameter of a dotted name.

        Raises:
            AttributeError: there is none; the message lists those there are where the path ends.
        """
        found: Parameter = self._get(target, "parameter", Module.own_parameters)
        return found

    def get_buffer(self, target: str) -> Tensor:
        """The buffer of a dotted name; raises as `get_parameter`."""
        found: Tensor = self._get(target, "buffer", Module.own_buffers)
        return found

    def _get(self, target: str, kind: str, own: Callable[..., list[tuple[str, Any]]]) -> Any:
        path, _, name = target.rpartition(".")
        found = dict(own(self.get_submodule(path)))
        if name not in found:
            raise AttributeError(
                f"{type(self).__name__} has no {kind} {target!r}: "
                f"{path or type(self).__name__} has {', '.join(found) or 'none'}"
            )
        return found[name]

    # -- making it ---------------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        held = vars(self).get(name)
        if held is not None and value is not None:
            if isinstance(held, Parameter) and not isinstance(value, (Parameter, Module)):
                raise TypeError(
                    f"{type(self).__name__}.{name} is a Parameter, and {type(value).__name__} "
                    f"would take it from the optimizer: assign a Parameter, or write into it by "
                    f"{name}.copy_(...) under no_grad()"
                )
            if name in self._persistent and not isinstance(value, Tensor):
                raise TypeError(
                    f"{type(self).__name__}.{name} is a buffer: assign a Tensor or None, not "
                    f"{type(value).__name__}"
                )
            if isinstance(held, Module) and not isinstance(value, (Parameter, Module)):
                raise TypeError(
                    f"{type(self).__name__}.{name} is a Module: assign a Module or None, not "
                    f"{type(value).__name__}; for another kind of thing `del` it first"
                )
        super().__setattr__(name, value)
        if held is not value:
            structure.count()

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        structure.count()
        if name in self._persistent:
            self._persistent = {k: v for k, v in self._persistent.items() if k != name}

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Register a parameter, as `self.name = param` does; None stands for a parameter that this
        module goes without.

        Raises:
            TypeError: it is no Parameter.
            ValueError: the name is taken, or cannot be part of a dotted name.
        """
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(f"parameter {name!r} must be a Parameter, not {_kind(param)}")
        self._check_new(name)
        setattr(self, name, param)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Keep a tensor that is part of the module but not trained, as attribute `name`.

        Args:
            tensor: or None, for a buffer that this module goes without.
            persistent: whether it belongs to the `state_dict`.

        Raises:
            TypeError: it is no Tensor.
            ValueError: the name is taken, or cannot be part of a dotted name.
        """
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(f"buffer {name!r} must be a Tensor, not {_kind(tensor)}")
        self._check_new(name, own=name in self._persistent)
        self._persistent = {**self._persistent, name: persistent}
        setattr(self, name, tensor)

    def add_module(self, name: str, module: Module | None) -> None:
        """Register a module, as `self.name = module` does, which also replaces a module of this
        name.

        Raises:
            TypeError: it is no Module.
            ValueError: the name is taken, or cannot be part of a dotted name.
        """
        if module is not None and not isinstance(module, Module):
            raise TypeError(
                f"module {name!r} must be a Module, not {_kind(module)} ({module!r:.40}); give it "
                f"an instance of a Module"
            )
        self._check_new(name, own=isinstance(vars(self).get(name), Module))
        setattr(self, name, module)

    register_module = add_module

    def _check_new(self, name: str, own: bool = False) -> None:
        if not isinstance(name, str) or not name or "." in name:
            raise ValueError(f"a name must be text, not be empty, and have no dot in it: {name!r}")
        if not own and (hasattr(type(self), name) or vars(self).get(name) is not None):
            raise ValueError(f"{type(self).__name__} has an attribute {name!r} already")

    # -- changing all of it ------------------------------------------------------------------------

    def train(self, mode: bool = True) -> Self:
        """Training mode, or for False evaluation mode, here and in all modules below.

        In training dropout drops and batch norm measures.

        Returns:
            This module.
        """
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Self:
        """Evaluation mode, here and in all modules below."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Train all parameters, or freeze them."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of all parameters, or set them to zeros in place."""
        for parameter in self.parameters():
            if set_to_none:
                parameter.grad = None
            elif parameter.grad is not None:
                with no_grad():
                    parameter.grad.zero_()

    def apply(self, fn: Callable[[Module], Any]) -> Self:
        """Call `fn` on every module, children before parents; for initialization."""
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    def to(self, *target: Any, **keywords: Any) -> Self:
        """Convert the floating-point parameters and buffers. The objects stay the same ones.

        Args:
            target, keywords: a dtype, or PyTorch's other forms, as for `Tensor.to`.

        Raises:
            DTypeError: the dtype is not a floating-point type.
            RuntimeError: it is a device other than the CPU.
        """
        kind, _ = conversion_target(target, keywords)
        if kind is None:
            return self
        if not kind.is_floating_point:
            raise DTypeError(f"a module's dtype must be floating-point, not {kind.name}")
        codes = {id(getattr(module, name)) for module in self.modules() for name in module._codes}
        for t in (*self.parameters(), *self.buffers()):
            if t.dtype.is_floating_point and t.dtype is not kind and id(t) not in codes:
                _convert(t, kind)
        return self

    def float(self) -> Self:
        """Convert to float32."""
        return self.to("float32")

    def double(self) -> Self:
        """Convert to float64."""
        return self.to("float64")

    def half(self) -> Self:
        """Convert to float16."""
        return self.to("float16")

    # -- state, hooks, text ------------------------------------------------------------------------

    def state_dict(
        self,
        destination: dict[str, Any] | None = None,
        prefix: str = "",
        keep_vars: bool = False,
    ) -> dict[str, Any]:
        """All parameters and persistent buffers by dotted name; the tensors share memory.

        Args:
            destination: the dict to put them into, by default a new one.
            prefix: is put before all names.
            keep_vars: give the tensors themselves; they are detached otherwise.
        """
        return state.state_dict(self, destination, prefix, keep_vars)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> IncompatibleKeys:
        """Copy values into the parameters and buffers, by dotted name.

        Args:
            state_dict: tensors or NumPy arrays by name.
            strict: names that are missing or unexpected are errors; otherwise they are returned.
            assign: put the tensors of the state, with their dtype, in place of the module's; an
                optimizer that was made before has the old ones.

        Raises:
            StateDictError: names or shapes do not fit; all are listed, and nothing was loaded.
        """
        return state.load_state_dict(self, state_dict, strict, assign)

    def get_extra_state(self) -> Any:
        """What `state_dict` is to have beside tensors. Override, with `set_extra_state`."""
        raise NotImplementedError(f"{type(self).__name__} has set_extra_state only: write this too")

    def set_extra_state(self, state: Any) -> None:
        """Take over what `get_extra_state` gave. Override."""
        raise NotImplementedError(f"{type(self).__name__} has get_extra_state only: write this too")

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        """Put what is of this very module into `destination`. Override to save something else."""
        state.save_own(self, Module, destination, prefix, keep_vars)

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: Mapping[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Load what is of this very module. Override to change `state_dict`, in place, before."""
        state.load_own(self, Module, state_dict, prefix, local_metadata, missing_keys, error_msgs)

    def register_forward_pre_hook(
        self, hook: Hook, *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, args)` before `forward`; what it returns replaces the arguments.

        Args:
            prepend: call it before the hooks that are there.
            with_kwargs: call `hook(module, args, kwargs)`, which returns both or None.
        """
        return self._own_hooks().before.add(hook, prepend, with_kwargs)

    def register_forward_hook(
        self, hook: Hook, *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, args, out)` after `forward`; what it returns replaces the result.

        Args:
            prepend: call it before the hooks that are there.
            with_kwargs: call `hook(module, args, kwargs, out)`.
        """
        return self._own_hooks().after.add(hook, prepend, with_kwargs)

    def register_full_backward_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call `hook(module, grad_input, grad_output)` when the gradients of the inputs are known.

        Both are tuples, of one gradient (or None) for each positional argument and each result.
        What the hook returns replaces the gradients of the inputs.
        """
        return self._own_hooks().backward.add(hook, prepend)

    def register_full_backward_pre_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call `hook(module, grad_output)` when the gradients of the results are known; what it
        returns replaces them."""
        return self._own_hooks().before_backward.add(hook, prepend)

    def _own_hooks(self) -> Hooks:
        if self._hooks is None:
            self._hooks = Hooks()
        return self._hooks

    def extra_repr(self) -> str:
        """The text between the parentheses of the text form. Override."""
        return ""

    def __repr__(self) -> str:
        return format_module(self)


add_foreign_names(Module, "torch.nn.Module")


def _convert(tensor: Tensor, dtype: DType) -> None:
    """Give a tensor that others hold too another dtype."""
    old, new = tensor._concrete("to"), tensor.detach().to(dtype)
    tensor._data, tensor.meta = new._data, new.meta
    tensor.grad = None if tensor.grad is None else tensor.grad.to(dtype)
    # a history that was recorded before would give gradients of the old dtype
    write_clock.write(old)
    write_clock.write(new._data)


def _kind(value: Any) -> str:
    return type(value).__name__
