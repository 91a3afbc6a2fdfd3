"""Wrong solutions that students write, with the points that they lose, and other right ones."""

from tito.lessons.mistake import Alternative, Equivalent, Mistake

SGD = """
def sgd_step(p, g, buffer, *, lr, momentum, dampening, weight_decay, nesterov, first):
    if weight_decay:
        g = g + p * weight_decay
    if buffer is not None:
        buffer.mul_(momentum).add_(g, alpha=1 if first else 1 - dampening)
        g = g + buffer * momentum if nesterov else buffer
    p.sub_(g * lr)
"""

ADAM = """
def adam_step(p, g, m, v, step, *, lr, beta1, beta2, eps, weight_decay, decoupled):
    t = step.add_(1).double()
    rate = lr / (1 - beta1**t).to(p.dtype)
    correction = (1 - beta2**t).sqrt().to(p.dtype)
    if weight_decay and decoupled:
        p.mul_(1 - lr * weight_decay)
    elif weight_decay:
        g = g + p * weight_decay
    m.mul_(beta1).add_(g, alpha=1 - beta1)
    v.mul_(beta2).add_(g * g, alpha=1 - beta2)
    p.sub_(m / (v.sqrt() / correction + eps) * rate)
"""

BUFFER = """
def buffer_of(state, name, p, fill=0.0):
    buffer = state.get(name)
    if buffer is None:
        buffer = state[name] = wrap(np.full(p.shape, fill, p.dtype.dtype), p.meta)
    elif (buffer.shape, buffer.dtype) != (p.shape, p.dtype):
        raise DTypeError(f"{name} is {buffer.meta}, but its parameter has become {p.meta}")
    return buffer
"""

STATE = """
def state_dict(optimizer):
    params = optimizer._params()
    numbers = {id(p): i for i, p in enumerate(params)}
    return {
        "state": {i: dict(s) for i, p in enumerate(params) if (s := optimizer.state.get(p))},
        "param_groups": [
            {**group, "params": [numbers[id(p)] for p in group["params"]]}
            for group in optimizer.param_groups
        ],
    }
"""

GROUP = """
class Optimizer(tinytorch.optim.Optimizer):
    def add_param_group(self, param_group):
        new = {**self.defaults, **param_group, **_listed(param_group["params"])}
        for name in param_group.keys() - self.defaults.keys() - {"params"}:
            self._check_extra_option(name)
        self.check_options(new)
        known = {id(p) for p in self._params()}
        for i, p in enumerate(new["params"]):
            _check_parameter(i, p)
            if id(p) in known:
                raise ValueError(f"parameter {i} (shape {p.shape}) is given twice")
            known.add(id(p))
        self.param_groups.append(new)

    def zero_grad(self, set_to_none=True):
        for p in self._params():
            if set_to_none:
                p.grad = None
            elif p.grad is not None:
                with no_grad():
                    p.grad.zero_()
"""

CLIP = """
def clip_grad_norm_(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False):
    gradients = _gradients(parameters)
    if not gradients:
        return zeros()
    with phase("optimizer"), no_grad():
        total = norm(stack([norm(g, norm_type) for g in gradients]), norm_type)
        if error_if_nonfinite and not math.isfinite(total.item()):
            raise ValueError(f"the norm of the gradients is {total.item()}")
        factor = clip(max_norm / (total + 1e-6), max=1.0)
        for g in gradients:
            g.mul_(factor)
    return total
"""


def changed(text: str, old: str, new: str) -> str:
    """The text with `old`, which it has once, replaced."""
    if text.count(old) != 1:
        raise ValueError(f"{old!r} is {text.count(old)} times in the text")
    return text.replace(old, new)


MISTAKES = [
    Mistake(
        exercise="sgd",
        name="makes a new parameter, which nobody has",
        source=changed(SGD, "p.sub_(g * lr)", "p = p - g * lr"),
        loses={"sgd-plain": 2, "sgd-momentum": 3, "sgd-nesterov": 2, "sgd-penalty": 2},
    ),
    Mistake(
        exercise="sgd",
        name="goes up",
        source=changed(SGD, "p.sub_(g * lr)", "p.add_(g * lr)"),
        loses={"sgd-plain": 2, "sgd-momentum": 3, "sgd-nesterov": 2, "sgd-penalty": 2},
    ),
    Mistake(
        exercise="sgd",
        name="writes the penalty into the gradient of the caller",
        source=changed(SGD, "g = g + p * weight_decay", "g.add_(p * weight_decay)"),
        loses={"sgd-plain": 2, "sgd-penalty": 2},
    ),
    Mistake(
        exercise="sgd",
        name="forgets the penalty where there is a buffer",
        source=changed(SGD, "if weight_decay:", "if weight_decay and buffer is None:"),
        loses={"sgd-penalty": 2},
    ),
    Mistake(
        exercise="sgd",
        name="dampens the first gradient",
        source=changed(SGD, "1 if first else 1 - dampening", "1 - dampening"),
        loses={"sgd-momentum": 3},
    ),
    Mistake(
        exercise="sgd",
        name="takes a running mean for the sum",
        source=changed(SGD, "1 if first else 1 - dampening", "1 if first else 1 - momentum"),
        loses={"sgd-momentum": 3, "sgd-nesterov": 2, "sgd-penalty": 2},
    ),
    Mistake(
        exercise="sgd",
        name="does not keep the buffer",
        source=changed(
            SGD,
            "buffer.mul_(momentum).add_(g, alpha=1 if first else 1 - dampening)",
            "buffer = buffer * momentum + g * (1 if first else 1 - dampening)",
        ),
        loses={"sgd-momentum": 3, "sgd-nesterov": 2, "sgd-penalty": 2},
    ),
    Mistake(
        exercise="sgd",
        name="does Nesterov always",
        source=changed(
            SGD, "g + buffer * momentum if nesterov else buffer", "g + buffer * momentum"
        ),
        loses={"sgd-momentum": 3, "sgd-penalty": 2},
    ),
    Mistake(
        exercise="sgd",
        name="forgets Nesterov",
        source=changed(SGD, "g + buffer * momentum if nesterov else buffer", "buffer"),
        loses={"sgd-nesterov": 2, "sgd-penalty": 2},
    ),
    Mistake(
        exercise="sgd",
        name="adds the buffer to the gradient without the momentum",
        source=changed(SGD, "g + buffer * momentum if", "g + buffer if"),
        loses={"sgd-nesterov": 2, "sgd-penalty": 2},
    ),
    Mistake(
        exercise="adam",
        name="forgets both corrections",
        source=changed(
            changed(ADAM, "lr / (1 - beta1**t).to(p.dtype)", "lr"),
            "(1 - beta2**t).sqrt().to(p.dtype)",
            "1.0",
        ),
        loses={"adam-first": 2, "adam-running": 3, "adam-decay": 3, "adam-digits": 2},
    ),
    Mistake(
        exercise="adam",
        name="corrects without the root",
        source=changed(ADAM, "(1 - beta2**t).sqrt()", "(1 - beta2**t)"),
        loses={"adam-first": 2, "adam-running": 3, "adam-decay": 3, "adam-digits": 2},
    ),
    Mistake(
        exercise="adam",
        name="corrects with the number of the step before",
        source=changed(ADAM, "step.add_(1).double()", "step.double() + 1"),
        loses={"adam-first": 2, "adam-running": 3},
    ),
    Mistake(
        exercise="adam",
        name="adds eps inside the root",
        source=changed(ADAM, "(v.sqrt() / correction + eps)", "((v / correction**2 + eps).sqrt())"),
        loses={"adam-running": 3},
    ),
    Mistake(
        exercise="adam",
        name="adds eps before the correction",
        source=changed(ADAM, "(v.sqrt() / correction + eps)", "((v.sqrt() + eps) / correction)"),
        loses={"adam-running": 3},
    ),
    Mistake(
        exercise="adam",
        name="keeps the corrected means",
        source=changed(
            ADAM,
            "    p.sub_(m / (v.sqrt() / correction + eps) * rate)",
            "    m.div_((1 - beta1**t).to(p.dtype))\n"
            "    v.div_((1 - beta2**t).to(p.dtype))\n"
            "    p.sub_(m / (v.sqrt() + eps) * lr)",
        ),
        loses={"adam-first": 2, "adam-running": 3, "adam-decay": 3},
    ),
    Mistake(
        exercise="adam",
        name="takes the powers of beta in float32",
        source=changed(ADAM, "step.add_(1).double()", "step.add_(1)"),
        loses={"adam-digits": 2},
    ),
    Mistake(
        exercise="adam",
        name="lets the decoupled decay enter the means",
        source=changed(ADAM, "if weight_decay and decoupled:", "if False:"),
        loses={"adam-decay": 3},
    ),
    Mistake(
        exercise="adam",
        name="decays by both",
        source=changed(ADAM, "elif weight_decay:", "if weight_decay:"),
        loses={"adam-decay": 3},
    ),
    Mistake(
        exercise="adam",
        name="decays without the rate",
        source=changed(ADAM, "p.mul_(1 - lr * weight_decay)", "p.mul_(1 - weight_decay)"),
        loses={"adam-decay": 3},
    ),
    Mistake(
        exercise="adam",
        name="decays after the step",
        source=changed(
            changed(ADAM, "        p.mul_(1 - lr * weight_decay)", "        pass"),
            "+ eps) * rate)",
            "+ eps) * rate)\n    if decoupled:\n        p.mul_(1 - lr * weight_decay)",
        ),
        loses={"adam-decay": 3},
    ),
    Mistake(
        exercise="adam",
        name="uses beta1 for both means",
        source=changed(
            ADAM,
            "v.mul_(beta2).add_(g * g, alpha=1 - beta2)",
            "v.mul_(beta1).add_(g * g, alpha=1 - beta1)",
        ),
        loses={"adam-first": 2, "adam-running": 3, "adam-decay": 3, "adam-digits": 2},
    ),
    Mistake(
        exercise="memory",
        name="does not keep the buffer",
        source=changed(BUFFER, "buffer = state[name] = wrap", "buffer = wrap"),
        loses={"buffers": 2, "memory-details": 1},
    ),
    Mistake(
        exercise="memory",
        name="makes a new buffer every time",
        source=changed(BUFFER, "if buffer is None:", "if True:"),
        loses={"buffers": 2, "memory-details": 1},
    ),
    Mistake(
        exercise="memory",
        name="gives a copy",
        source=changed(BUFFER, "return buffer", "return buffer.clone()"),
        loses={"buffers": 2},
    ),
    Mistake(
        exercise="memory",
        name="always starts at 0",
        source=changed(BUFFER, "np.full(p.shape, fill, ", "np.full(p.shape, 0.0, "),
        loses={"memory-details": 1},
    ),
    Mistake(
        exercise="memory",
        name="always has numbers in float32",
        source=changed(BUFFER, "p.dtype.dtype", "np.float32"),
        loses={"memory-details": 1},
    ),
    Mistake(
        exercise="memory",
        name="does not notice a parameter that was converted",
        source=changed(
            BUFFER, "(buffer.shape, buffer.dtype) != (p.shape, p.dtype)", "buffer.shape != p.shape"
        ),
        loses={"memory-details": 1},
    ),
    Mistake(
        exercise="memory",
        name="begins to count anew in each group",
        source=changed(
            STATE, '[numbers[id(p)] for p in group["params"]]', 'list(range(len(group["params"])))'
        ),
        loses={"numbers": 3},
    ),
    Mistake(
        exercise="memory",
        name="leaves the tensors in the groups",
        source=changed(
            STATE, '{**group, "params": [numbers[id(p)] for p in group["params"]]}', "dict(group)"
        ),
        loses={"numbers": 3},
    ),
    Mistake(
        exercise="memory",
        name="writes the numbers into the optimizer's own groups",
        source="""
def state_dict(optimizer):
    params = optimizer._params()
    numbers = {id(p): i for i, p in enumerate(params)}
    states = {i: dict(s) for i, p in enumerate(params) if (s := optimizer.state.get(p))}
    for group in optimizer.param_groups:
        group["params"] = [numbers[id(p)] for p in group["params"]]
    return {"state": states, "param_groups": optimizer.param_groups}
""",
        loses={"numbers": 3, "memory-details": 1},
    ),
    Mistake(
        exercise="memory",
        name="gives the optimizer's own dictionaries",
        source=changed(STATE, "i: dict(s) for", "i: s for"),
        loses={"memory-details": 1},
    ),
    Mistake(
        exercise="memory",
        name="numbers only the parameters that have a state",
        source=changed(
            STATE,
            "{i: dict(s) for i, p in enumerate(params) if (s := optimizer.state.get(p))}",
            "dict(enumerate(dict(s) for s in optimizer.state.values()))",
        ),
        loses={"numbers": 3},
    ),
    Mistake(
        exercise="groups",
        name="lets the defaults win",
        source=changed(
            GROUP, "{**self.defaults, **param_group,", "{**param_group, **self.defaults,"
        ),
        loses={"groups-options": 3, "groups-refused": 2},
    ),
    Mistake(
        exercise="groups",
        name="changes the defaults",
        source=changed(
            GROUP,
            'new = {**self.defaults, **param_group, **_listed(param_group["params"])}',
            "new = self.defaults\n        "
            'new.update(param_group, **_listed(param_group["params"]))',
        ),
        loses={"groups-options": 3, "groups-refused": 2, "zero-grad": 2},
    ),
    Mistake(
        exercise="groups",
        name="takes the group in before it is checked",
        source=changed(
            changed(GROUP, "        self.param_groups.append(new)\n", ""),
            "        known = {id(p) for p in self._params()}\n",
            "        known = {id(p) for p in self._params()}\n"
            "        self.param_groups.append(new)\n",
        ),
        loses={"groups-refused": 2},
    ),
    Mistake(
        exercise="groups",
        name="looks for a tensor in other groups only",
        source=changed(GROUP, "            known.add(id(p))\n", ""),
        loses={"groups-refused": 2},
    ),
    Mistake(
        exercise="groups",
        name="looks for a tensor in this group only",
        source=changed(GROUP, "{id(p) for p in self._params()}", "set()"),
        loses={"groups-refused": 2},
    ),
    Mistake(
        exercise="groups",
        name="does not ask for misspelled options",
        source=changed(GROUP, "            self._check_extra_option(name)", "            pass"),
        loses={"groups-refused": 2},
    ),
    Mistake(
        exercise="groups",
        name="does not check the options",
        source=changed(GROUP, "        self.check_options(new)\n", ""),
        loses={"groups-refused": 2},
    ),
    Mistake(
        exercise="groups",
        name="does not check the tensors",
        source=changed(GROUP, "            _check_parameter(i, p)\n", ""),
        loses={"groups-refused": 2},
    ),
    Mistake(
        exercise="groups",
        name="makes new zeros, in place of writing them",
        source=changed(
            GROUP,
            "                with no_grad():\n                    p.grad.zero_()",
            "                p.grad = p.grad * 0",
        ),
        loses={"zero-grad": 2},
    ),
    Mistake(
        exercise="groups",
        name="forgets tensors without a gradient",
        source=changed(GROUP, "elif p.grad is not None:", "else:"),
        loses={"zero-grad": 2},
    ),
    Mistake(
        exercise="groups",
        name="drops the gradients in every case",
        source=changed(GROUP, "if set_to_none:", "if True:"),
        loses={"zero-grad": 2},
    ),
    Mistake(
        exercise="clipping",
        name="clips each tensor by itself",
        source=changed(
            CLIP,
            "        factor = clip(max_norm / (total + 1e-6), max=1.0)\n"
            "        for g in gradients:\n            g.mul_(factor)",
            "        for g in gradients:\n"
            "            g.mul_(clip(max_norm / (norm(g, norm_type) + 1e-6), max=1.0))",
        ),
        loses={"clipping-norm": 3, "clipping-details": 2},
    ),
    Mistake(
        exercise="clipping",
        name="makes short gradients longer",
        source=changed(
            CLIP, "clip(max_norm / (total + 1e-6), max=1.0)", "max_norm / (total + 1e-6)"
        ),
        loses={"clipping-norm": 3, "clipping-details": 2},
    ),
    Mistake(
        exercise="clipping",
        name="returns the norm after clipping",
        source=changed(CLIP, "return total\n", "return clip(total, max=max_norm)\n"),
        loses={"clipping-norm": 3, "clipping-details": 2},
    ),
    Mistake(
        exercise="clipping",
        name="knows one norm only",
        source=changed(
            CLIP,
            "norm(stack([norm(g, norm_type) for g in gradients]), norm_type)",
            "norm(stack([norm(g) for g in gradients]))",
        ),
        loses={"clipping-details": 2},
    ),
    Mistake(
        exercise="clipping",
        name="adds the norms up",
        source=changed(
            CLIP,
            "norm(stack([norm(g, norm_type) for g in gradients]), norm_type)",
            "stack([norm(g, norm_type) for g in gradients]).sum()",
        ),
        loses={"clipping-norm": 3, "clipping-details": 2},
    ),
    Mistake(
        exercise="clipping",
        name="never raises",
        source=changed(CLIP, "error_if_nonfinite and not", "False and not"),
        loses={"clipping-details": 2},
    ),
    Mistake(
        exercise="clipping",
        name="raises always",
        source=changed(CLIP, "error_if_nonfinite and not", "not"),
        loses={"clipping-details": 2},
    ),
    Mistake(
        exercise="clipping",
        name="forgets that there may be no gradients",
        source=changed(CLIP, "    if not gradients:\n        return zeros()\n", ""),
        loses={"clipping-details": 2},
    ),
    Mistake(
        exercise="clipping",
        name="clips on one side",
        source="""
def clip_grad_value_(parameters, clip_value):
    with phase("optimizer"), no_grad():
        for g in _gradients(parameters):
            g.clamp_(max=clip_value)
""",
        loses={"clipping-values": 1},
    ),
    Mistake(
        exercise="clipping",
        name="clips a copy",
        source="""
def clip_grad_value_(parameters, clip_value):
    with phase("optimizer"), no_grad():
        for g in _gradients(parameters):
            g = clip(g, -clip_value, clip_value)
""",
        loses={"clipping-values": 1},
    ),
    Mistake(
        exercise="schedule",
        name="warms up without an end",
        source="""
class LinearLR(tinytorch.optim.LinearLR):
    def lr_at(self, base, t, group):
        done = t / self.total_iters
        return base * (self.start_factor + (self.end_factor - self.start_factor) * done)
""",
        loses={"schedule-values": 2, "schedule-steps": 2},
    ),
    Mistake(
        exercise="schedule",
        name="warms up to the whole rate always",
        source="""
class LinearLR(tinytorch.optim.LinearLR):
    def lr_at(self, base, t, group):
        done = min(t, self.total_iters) / self.total_iters
        return base * (self.start_factor + (1 - self.start_factor) * done)
""",
        loses={"schedule-steps": 2},
    ),
    Mistake(
        exercise="schedule",
        name="takes a whole period for half of one",
        source="""
class CosineAnnealingLR(tinytorch.optim.CosineAnnealingLR):
    def lr_at(self, base, t, group):
        way = (1 + math.cos(2 * math.pi * t / self.T_max)) / 2
        return self.eta_min + (base - self.eta_min) * way
""",
        loses={"schedule-values": 2, "schedule-steps": 2},
    ),
    Mistake(
        exercise="schedule",
        name="goes down to 0 in place of eta_min",
        source="""
class CosineAnnealingLR(tinytorch.optim.CosineAnnealingLR):
    def lr_at(self, base, t, group):
        return base * (1 + math.cos(math.pi * t / self.T_max)) / 2
""",
        loses={"schedule-values": 2},
    ),
    Mistake(
        exercise="schedule",
        name="puts eta_min upon the whole rate",
        source="""
class CosineAnnealingLR(tinytorch.optim.CosineAnnealingLR):
    def lr_at(self, base, t, group):
        return self.eta_min + base * (1 + math.cos(math.pi * t / self.T_max)) / 2
""",
        loses={"schedule-values": 2},
    ),
    Mistake(
        exercise="schedule",
        name="raises the way done, not the way left, to the power",
        source="""
class PolynomialLR(tinytorch.optim.lr_scheduler.PolynomialLR):
    def lr_at(self, base, t, group):
        done = min(t, self.total_iters) / self.total_iters
        return base * (1 - done**self.power)
""",
        loses={"schedule-values": 2},
    ),
    Mistake(
        exercise="memory",
        name="makes the buffer of the parameter, with its history and its infinities",
        source="""
def buffer_of(state, name, p, fill=0.0):
    if name not in state:
        state[name] = p * 0 + fill
    if (state[name].shape, state[name].dtype) != (p.shape, p.dtype):
        raise DTypeError(f"{name} is {state[name].meta}, its parameter {p.meta}")
    return state[name]
""",
        loses={"buffers": 2},
    ),
    Mistake(
        exercise="memory",
        name="keeps the rate only",
        source="""
def state_dict(optimizer):
    params = optimizer._params()
    numbers = {id(p): i for i, p in enumerate(params)}
    return {
        "state": {i: dict(s) for i, p in enumerate(params) if (s := optimizer.state.get(p))},
        "param_groups": [
            {"lr": group["lr"], "params": [numbers[id(p)] for p in group["params"]]}
            for group in optimizer.param_groups
        ],
    }
""",
        loses={"numbers": 3},
    ),
    Mistake(
        exercise="groups",
        name="writes the defaults into the caller's group",
        source="""
class Optimizer(tinytorch.optim.Optimizer):
    def add_param_group(self, param_group):
        for name in param_group.keys() - self.defaults.keys() - {"params"}:
            self._check_extra_option(name)
        for name, value in self.defaults.items():
            param_group.setdefault(name, value)
        new = {**param_group, **_listed(param_group["params"])}
        self.check_options(new)
        known = {id(p) for p in self._params()}
        for i, p in enumerate(new["params"]):
            _check_parameter(i, p)
            if id(p) in known:
                raise ValueError(f"parameter {i} is given twice")
            known.add(id(p))
        self.param_groups.append(new)
""",
        loses={"groups-options": 3},
    ),
    Mistake(
        exercise="groups",
        name="goes through an iterator twice",
        source="""
class Optimizer(tinytorch.optim.Optimizer):
    def add_param_group(self, param_group):
        for name in param_group.keys() - self.defaults.keys() - {"params"}:
            self._check_extra_option(name)
        given = param_group["params"]
        known = {id(p) for p in self._params()}
        for i, p in enumerate([given] if isinstance(given, Tensor) else given):
            p = p[1] if isinstance(p, tuple) else p
            _check_parameter(i, p)
            if id(p) in known:
                raise ValueError(f"parameter {i} is given twice")
            known.add(id(p))
        new = {**self.defaults, **param_group, **_listed(given)}
        self.check_options(new)
        self.param_groups.append(new)
""",
        loses={"groups-options": 3},
    ),
    Mistake(
        exercise="clipping",
        name="takes NaN for finite",
        source="""
def clip_grad_norm_(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False):
    gradients = _gradients(parameters)
    if not gradients:
        return zeros()
    with no_grad():
        total = norm(stack([norm(g, norm_type) for g in gradients]), norm_type)
        if error_if_nonfinite and total.item() == math.inf:
            raise ValueError(f"the norm of the gradients is {total.item()}")
        factor = clip(max_norm / (total + 1e-6), max=1.0)
        for g in gradients:
            g.mul_(factor)
    return total
""",
        loses={"clipping-details": 2},
    ),
]

ALTERNATIVES = [
    Alternative(
        exercise="sgd",
        name="computes the new values, then writes them",
        source="""
def sgd_step(p, g, buffer, *, lr, momentum, dampening, weight_decay, nesterov, first):
    d = weight_decay * p + g
    if buffer is not None:
        share = 1.0 if first else 1.0 - dampening
        buffer.copy_(momentum * buffer + share * d)
        d = d + momentum * buffer if nesterov else buffer
    p.copy_(p - lr * d)
""",
    ),
    Alternative(
        exercise="adam",
        name="with the two corrected means, as the formulas have them",
        source="""
def adam_step(p, g, m, v, step, *, lr, beta1, beta2, eps, weight_decay, decoupled):
    step.add_(1)
    t = step.double()
    if decoupled:
        p.sub_(p * (lr * weight_decay))
    else:
        g = g + weight_decay * p
    m.copy_(beta1 * m + (1 - beta1) * g)
    v.copy_(beta2 * v + (1 - beta2) * (g * g))
    m_hat = m / (1 - beta1**t).to(p.dtype)
    v_hat = v / (1 - beta2**t).to(p.dtype)
    p.sub_(lr * m_hat / (v_hat.sqrt() + eps))
""",
    ),
    Alternative(
        exercise="memory",
        name="asks whether it is there, and counts the parameters as they come",
        source="""
def buffer_of(state, name, p, fill=0.0):
    if name not in state:
        state[name] = wrap(np.full(p.shape, fill, p.dtype.dtype), p.meta)
    kept = state[name]
    if kept.shape != p.shape or kept.dtype != p.dtype:
        raise DTypeError(f"{name} was made for {kept.meta}, and that is {p.meta} by now")
    return kept


def state_dict(optimizer):
    numbers, states, groups = {}, {}, []
    for group in optimizer.param_groups:
        options = {name: value for name, value in group.items() if name != "params"}
        options["params"] = []
        for p in group["params"]:
            number = numbers.setdefault(id(p), len(numbers))
            options["params"].append(number)
            if optimizer.state.get(p):
                states[number] = dict(optimizer.state[p])
        groups.append(options)
    return {"state": states, "param_groups": groups}
""",
    ),
    Alternative(
        exercise="groups",
        name="collects the tensors of all groups, and compares each by `is`",
        source="""
class Optimizer(tinytorch.optim.Optimizer):
    def add_param_group(self, param_group):
        group = dict(self.defaults)
        group.update(param_group)
        group.update(_listed(param_group["params"]))
        for name in param_group:
            if name != "params" and name not in self.defaults:
                self._check_extra_option(name)
        self.check_options(group)
        taken = [p for other in self.param_groups for p in other["params"]]
        for i, p in enumerate(group["params"]):
            _check_parameter(i, p)
            if any(p is other for other in taken):
                raise ValueError("this tensor would be trained twice")
            taken.append(p)
        self.param_groups += [group]

    def zero_grad(self, set_to_none=True):
        with no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    if set_to_none:
                        p.grad = None
                    elif p.grad is not None:
                        p.grad.zero_()
""",
    ),
    Alternative(
        exercise="clipping",
        name="writes each new gradient over the old one",
        source="""
def clip_grad_norm_(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False):
    with no_grad():
        gradients = list(_gradients(parameters))
        if len(gradients) == 0:
            return zeros()
        total = norm(stack([norm(g, norm_type) for g in gradients]), norm_type)
        if error_if_nonfinite and not abs(total.item()) < math.inf:
            raise ValueError("an infinite or undefined gradient cannot be clipped")
        for g in gradients:
            g.copy_(g * clip(max_norm / (total + 1e-6), max=1.0))
        return total


def clip_grad_value_(parameters, clip_value):
    with no_grad():
        for g in _gradients(parameters):
            g.copy_(clip(g, -clip_value, clip_value))
""",
    ),
    Alternative(
        exercise="schedule",
        name="by what is left in place of what is done",
        source="""
class LinearLR(tinytorch.optim.LinearLR):
    def lr_at(self, base, t, group):
        left = max(self.total_iters - t, 0) / self.total_iters
        return base * (self.start_factor * left + self.end_factor * (1.0 - left))


class PolynomialLR(tinytorch.optim.lr_scheduler.PolynomialLR):
    def lr_at(self, base, t, group):
        left = max(self.total_iters - t, 0) / self.total_iters
        return base * left**self.power


class CosineAnnealingLR(tinytorch.optim.CosineAnnealingLR):
    def lr_at(self, base, t, group):
        half = (base - self.eta_min) / 2
        return self.eta_min + half + half * math.cos(t * math.pi / self.T_max)
""",
    ),
]

# Changes of the reference that are right too, and why.
ADDS_ZERO = "a short cut: a decay of 0 adds 0, or multiplies by 1"
INTERNED = (
    "metas are interned: equal ones are the same, so the short cut says what the comparison says"
)
KEYS = "the keys of a mapping, said without .keys()"
AS_FLOAT = "math.isfinite takes a 0-d tensor too"
IS_FLOAT = "the power of a float is one: float() is for the type checker"
EQUIVALENT = [
    Equivalent("sgd", "sgd_step: if weight_decay: -> if True:", ADDS_ZERO),
    Equivalent("adam", "adam_step: weight_decay and decoupled -> decoupled", ADDS_ZERO),
    Equivalent("adam", "adam_step: if weight_decay: -> if True:", ADDS_ZERO),
    Equivalent(
        "memory",
        "buffer_of: buffer.meta is not p.meta and (buffer.shape, buffer.dtype) != (p.shape, "
        "p.dtype) -> buffer.meta is not p.meta or (buffer.shape, buffer.dtype) != (p.shape, "
        "p.dtype)",
        INTERNED,
    ),
    Equivalent(
        "memory",
        "buffer_of: buffer.meta is not p.meta and (buffer.shape, buffer.dtype) != (p.shape, "
        "p.dtype) -> (buffer.shape, buffer.dtype) != (p.shape, p.dtype)",
        INTERNED,
    ),
    Equivalent(
        "memory",
        "buffer_of: buffer.meta is not p.meta and (buffer.shape, buffer.dtype) != (p.shape, "
        "p.dtype) -> buffer.meta is not p.meta",
        INTERNED,
    ),
    Equivalent("groups", "Optimizer.add_param_group: param_group.keys() -> param_group", KEYS),
    Equivalent("groups", "Optimizer.add_param_group: self.defaults.keys() -> self.defaults", KEYS),
    Equivalent("clipping", "clip_grad_norm_: total.item() -> total", AS_FLOAT),
    Equivalent(
        "schedule",
        "PolynomialLR.lr_at: float(left ** self.power) -> left ** self.power",
        IS_FLOAT,
    ),
]
