"""Wrong solutions that a student would plausibly write, and the points they lose."""

from tito.lessons.mistake import Alternative, Mistake

ACCURACY = """
def accuracy(outputs, targets):
    _check_classes(outputs, targets)
    return (outputs.argmax(1) == targets).double().mean().item()
"""

AVERAGES = """
class Averages(tinytorch.training.metrics.Averages):
    def add(self, values, weight):
        for name, value in values.items():
            self._sums[name] = self._sums.get(name, 0.0) + weight * value
        self._weight += weight

    def means(self):
        if not self._weight:
            raise ValueError("there is nothing to average: the loader gave no batches")
        return {name: total / self._weight for name, total in self._sums.items()}
"""

UPDATE = """
def update(trainer, batches):
    trainer.optimizer.zero_grad()
    mean = 0.0
    for batch, share in zip(batches, shares(batches), strict=True):
        outputs, targets = trainer.forward(batch)
        loss = trainer.loss_of(outputs, targets)
        value = loss.item()
        trainer.check_loss(value, batch)
        (loss * share).backward()
        mean += share * value
        with no_grad():
            trainer.measure(trainer.averages, value, outputs, targets)
    if trainer.clip_norm is not None:
        clip_grad_norm_(trainer.model.parameters(), trainer.clip_norm)
    trainer.optimizer.step()
    trainer.step += 1
    trainer.batch += len(batches)
    return mean
"""

EVALUATE = """
def evaluate(trainer, loader):
    averages = Averages()
    modes = [(module, module.training) for module in trainer.model.modules()]
    trainer.model.eval()
    try:
        with no_grad():
            for batch in loader:
                outputs, targets = trainer.forward(batch)
                loss = trainer.loss_of(outputs, targets)
                trainer.measure(averages, loss.item(), outputs, targets)
    finally:
        for module, training in modes:
            module.training = training
    return averages.means()
"""

EPOCH = """
def run_epoch(trainer, loader, validation):
    started = time.perf_counter()
    trainer.begin_epoch()
    trainer.call("on_epoch_start")
    for batches in batched(loader, trainer.accumulate, False):
        loss = trainer.update(batches)
        trainer.call("on_step_end", loss)
        trainer.exit_if_interrupted()
    trainer.check_weights()
    record = record_of(trainer, validation, started)
    trainer.history.records.append(record)
    trainer.epoch, trainer.batch = trainer.epoch + 1, 0
    trainer.call("on_epoch_end", record)
    trainer.call("after_epoch", record)
    trainer.exit_if_interrupted()
"""

RECORD = """
def record_of(trainer, validation, started):
    record = {"epoch": trainer.epoch + 1, "step": trainer.step}
    record |= trainer.averages.means()
    if validation is not None:
        measured = trainer.evaluate(validation)
        if not math.isfinite(measured["loss"]):
            trainer.fail(f"the validation loss is {measured['loss']}")
        record |= {VALIDATION + name: value for name, value in measured.items()}
    record["lr"] = trainer.optimizer.param_groups[0]["lr"]
    record["seconds"] = time.perf_counter() - started
    return record
"""

BEST = """
class Best(tinytorch.training.callbacks.Best):
    def improves(self, record):
        value = value_of(record, self.monitor)
        better = self.value - value if self.mode == "min" else value - self.value
        if better > self.min_delta:
            self.value = value
            return True
        return False
"""

STOPPING = """
class EarlyStopping(tinytorch.training.EarlyStopping):
    def on_epoch_end(self, trainer, record):
        if self.best.improves(record):
            self.waited = 0
            if self.restore_best:
                self.best_weights = copy_tree(trainer.model.state_dict())
            return
        self.waited += 1
        if self.waited >= self.patience:
            trainer.should_stop = True
            trainer.report(f"{self.best.monitor} {self.best.value} {self.waited}")

    def on_fit_end(self, trainer):
        if self.waited >= self.patience and self.best_weights is not None:
            trainer.model.load_state_dict(self.best_weights)
"""

COPY = """
def copy_tree(tree):
    if isinstance(tree, Mapping):
        return {key: copy_tree(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [copy_tree(value) for value in tree]
    return tree.detach().clone() if isinstance(tree, Tensor) else tree
"""

RESTORE = """
def restore(trainer, state):
    missing = sorted(name for name in capture(trainer) if name not in state)
    if missing:
        raise DataError(f"this is no state of a Trainer: it lacks {', '.join(missing)}")
    before = copy_tree(capture(trainer))
    try:
        take_over(trainer, state)
    except Exception:
        take_over(trainer, before)
        raise
    trainer.pending = {"generator": dict(state["generator"]), "loaders": dict(state["loaders"])}
"""

FIRST = """
def first_nonfinite(model, run):
    found = []

    def watch(name):
        def hook(module, args, out):
            if not is_finite(out):
                found.append(name)

        return hook

    handles = [m.register_forward_hook(watch(name)) for name, m in model.named_modules()]
    try:
        with no_grad():
            run()
    finally:
        for handle in handles:
            handle.remove()
    return found[0] if found else None
"""


def changed(text: str, old: str, new: str) -> str:
    """The text with `old`, which it has once, replaced."""
    if text.count(old) != 1:
        raise ValueError(f"{old!r} is {text.count(old)} times in the text")
    return text.replace(old, new)


MISTAKES = [
    Mistake(
        exercise="measuring",
        name="takes the largest of each class, not of each sample",
        source=changed(ACCURACY, "argmax(1)", "argmax(0)"),
        loses={"accuracy-values": 1},
    ),
    Mistake(
        exercise="measuring",
        name="gives a tensor",
        source=changed(ACCURACY, ".item()", ""),
        loses={"accuracy-values": 1},
    ),
    Mistake(
        exercise="measuring",
        name="counts, and does not divide",
        source=changed(ACCURACY, "mean()", "sum()"),
        loses={"accuracy-values": 1},
    ),
    Mistake(
        exercise="measuring",
        name="does not look at the shapes",
        source=changed(ACCURACY, "    _check_classes(outputs, targets)\n", ""),
        loses={"measuring-details": 2},
    ),
    Mistake(
        exercise="measuring",
        name="counts batches, not samples",
        source=changed(changed(AVERAGES, "+ weight * value", "+ value"), "+= weight\n", "+= 1\n"),
        loses={"averages-weights": 2, "evaluate-values": 2},
    ),
    Mistake(
        exercise="measuring",
        name="counts the weight once for each quantity",
        source=changed(
            AVERAGES, "        self._weight += weight", "            self._weight += weight"
        ),
        loses={"averages-weights": 2, "evaluate-values": 2},
    ),
    Mistake(
        exercise="measuring",
        name="keeps the last batch only",
        source=changed(AVERAGES, "self._sums.get(name, 0.0) + ", ""),
        loses={"averages-weights": 2, "evaluate-values": 2},
    ),
    Mistake(
        exercise="measuring",
        name="divides the sums themselves when it is asked",
        source=changed(
            AVERAGES,
            "        return {name: total / self._weight for name, total in self._sums.items()}",
            "        for name in self._sums:\n"
            "            self._sums[name] /= self._weight\n"
            "        return self._sums",
        ),
        loses={"averages-weights": 2},
    ),
    Mistake(
        exercise="measuring",
        name="gives no means where there is nothing",
        source=changed(
            AVERAGES,
            'raise ValueError("there is nothing to average: the loader gave no batches")',
            "return {}",
        ),
        loses={"measuring-details": 2, "evaluate-errors": 2},
    ),
    Mistake(
        exercise="update",
        name="gives each batch the same share",
        source="""
def shares(batches):
    return [1 / len(batches)] * len(batches)
""",
        loses={"shares-values": 1, "update-many": 3},
    ),
    Mistake(
        exercise="update",
        name="gives numbers of samples in place of shares",
        source="""
def shares(batches):
    return [samples_in(batch) for batch in batches]
""",
        loses={"shares-values": 1, "update-one": 3, "update-many": 3, "update-details": 3},
    ),
    Mistake(
        exercise="update",
        name="does not forget the gradients of the update before",
        source=changed(UPDATE, "    trainer.optimizer.zero_grad()\n", ""),
        loses={"update-one": 3},
    ),
    Mistake(
        exercise="update",
        name="forgets the gradients for each batch",
        source=changed(
            changed(UPDATE, "    trainer.optimizer.zero_grad()\n", ""),
            "        (loss * share).backward()",
            "        trainer.optimizer.zero_grad()\n        (loss * share).backward()",
        ),
        loses={"update-many": 3, "update-details": 3},
    ),
    Mistake(
        exercise="update",
        name="adds up gradients without shares",
        source=changed(UPDATE, "(loss * share).backward()", "loss.backward()"),
        loses={"update-many": 3, "update-details": 3},
    ),
    Mistake(
        exercise="update",
        name="takes a step for each batch",
        source=changed(
            changed(UPDATE, "    trainer.optimizer.step()\n", ""),
            "        mean += share * value\n",
            "        mean += share * value\n        trainer.optimizer.step()\n",
        ),
        loses={"update-many": 3, "update-details": 3},
    ),
    Mistake(
        exercise="update",
        name="returns the loss of the last batch",
        source=changed(UPDATE, "mean += share * value", "mean = value"),
        loses={"update-many": 3},
    ),
    Mistake(
        exercise="update",
        name="returns the sum of the losses",
        source=changed(UPDATE, "mean += share * value", "mean += value"),
        loses={"update-many": 3},
    ),
    Mistake(
        exercise="update",
        name="returns a tensor with its history",
        source=changed(UPDATE, "mean += share * value", "mean = mean + share * loss"),
        loses={"update-one": 3},
    ),
    Mistake(
        exercise="update",
        name="clips after the step",
        source=changed(
            changed(UPDATE, "    trainer.optimizer.step()\n", ""),
            "    if trainer.clip_norm is not None:",
            "    trainer.optimizer.step()\n    if trainer.clip_norm is not None:",
        ),
        loses={"update-details": 3},
    ),
    Mistake(
        exercise="update",
        name="does not clip",
        source=changed(UPDATE, "if trainer.clip_norm is not None:", "if False:"),
        loses={"update-details": 3},
    ),
    Mistake(
        exercise="update",
        name="does not look whether the loss is finite",
        source=changed(UPDATE, "        trainer.check_loss(value, batch)\n", ""),
        loses={"update-details": 3},
    ),
    Mistake(
        exercise="update",
        name="measures with history",
        source=changed(UPDATE, "with no_grad():", "if True:"),
        loses={"update-details": 3},
    ),
    Mistake(
        exercise="update",
        name="does not measure",
        source=changed(
            UPDATE, "trainer.measure(trainer.averages, value, outputs, targets)", "pass"
        ),
        loses={"update-one": 3, "update-many": 3, "update-details": 3},
    ),
    Mistake(
        exercise="update",
        name="measures the loss times its share",
        source=changed(
            UPDATE,
            "measure(trainer.averages, value, outputs",
            "measure(trainer.averages, share * value, outputs",
        ),
        loses={"update-many": 3},
    ),
    Mistake(
        exercise="update",
        name="counts a step for each batch",
        source=changed(UPDATE, "trainer.step += 1", "trainer.step += len(batches)"),
        loses={"update-many": 3},
    ),
    Mistake(
        exercise="update",
        name="counts one batch for an update",
        source=changed(UPDATE, "trainer.batch += len(batches)", "trainer.batch += 1"),
        loses={"update-many": 3},
    ),
    Mistake(
        exercise="evaluation",
        name="leaves dropout on",
        source=changed(EVALUATE, "    trainer.model.eval()\n", ""),
        loses={"evaluate-modes": 3},
    ),
    Mistake(
        exercise="evaluation",
        name="leaves the model in eval",
        source=changed(EVALUATE, "module.training = training", "pass"),
        loses={"evaluate-modes": 3, "evaluate-errors": 2},
    ),
    Mistake(
        exercise="evaluation",
        name="puts everything into training mode afterwards",
        source=changed(EVALUATE, "module.training = training", "module.training = True"),
        loses={"evaluate-modes": 3},
    ),
    Mistake(
        exercise="evaluation",
        name="notes the mode of the whole model only",
        source=changed(
            EVALUATE,
            "[(module, module.training) for module in trainer.model.modules()]",
            "[(trainer.model, trainer.model.training)]",
        ),
        loses={"evaluate-modes": 3, "evaluate-errors": 2},
    ),
    Mistake(
        exercise="evaluation",
        name="notes the modes after eval",
        source=changed(
            changed(EVALUATE, "    trainer.model.eval()\n", ""),
            "    modes = [",
            "    trainer.model.eval()\n    modes = [",
        ),
        loses={"evaluate-modes": 3, "evaluate-errors": 2},
    ),
    Mistake(
        exercise="evaluation",
        name="records history",
        source=changed(EVALUATE, "with no_grad():", "if True:"),
        loses={"evaluate-modes": 3},
    ),
    Mistake(
        exercise="evaluation",
        name="brings the modes back only if there was no error",
        source=changed(
            changed(EVALUATE, "    try:", "    if True:"), "    finally:", "    if True:"
        ),
        loses={"evaluate-errors": 2},
    ),
    Mistake(
        exercise="evaluation",
        name="adds to the trainer's own averages",
        source=changed(EVALUATE, "averages = Averages()", "averages = trainer.averages"),
        loses={"evaluate-values": 2},
    ),
    Mistake(
        exercise="evaluation",
        name="gives the mean of the last batch",
        source=changed(
            EVALUATE,
            "                outputs, targets",
            "                averages = Averages()\n                outputs, targets",
        ),
        loses={"evaluate-values": 2},
    ),
    Mistake(
        exercise="evaluation",
        name="takes a mean of means",
        source="""
def evaluate(trainer, loader):
    modes = [(module, module.training) for module in trainer.model.modules()]
    trainer.model.eval()
    found = []
    try:
        with no_grad():
            for batch in loader:
                outputs, targets = trainer.forward(batch)
                values = {"loss": trainer.loss_of(outputs, targets).item()}
                values |= {n: metric(outputs, targets) for n, metric in trainer.metrics.items()}
                found.append(values)
    finally:
        for module, training in modes:
            module.training = training
    if not found:
        raise ValueError("the loader gave no batches")
    return {n: sum(values[n] for values in found) / len(found) for n in found[0]}
""",
        loses={"evaluate-values": 2},
    ),
    Mistake(
        exercise="epoch",
        name="does not put the model into training mode",
        source=changed(EPOCH, "    trainer.begin_epoch()\n", ""),
        loses={"epoch-order": 4, "epoch-details": 3},
    ),
    Mistake(
        exercise="epoch",
        name="makes an update for each batch",
        source=changed(
            EPOCH, "batched(loader, trainer.accumulate, False)", "([b] for b in loader)"
        ),
        loses={"epoch-order": 4},
    ),
    Mistake(
        exercise="epoch",
        name="leaves out the batches that are left over",
        source=changed(EPOCH, "trainer.accumulate, False", "trainer.accumulate, True"),
        loses={"epoch-order": 4},
    ),
    Mistake(
        exercise="epoch",
        name="does not say the loss of a step",
        source=changed(EPOCH, '    trainer.call("on_step_end", loss)\n', "    pass\n"),
        loses={"epoch-order": 4, "epoch-details": 3},
    ),
    Mistake(
        exercise="epoch",
        name="counts the epoch after the callbacks",
        source=changed(
            changed(EPOCH, "    trainer.epoch, trainer.batch = trainer.epoch + 1, 0\n", ""),
            '    trainer.call("after_epoch", record)\n',
            '    trainer.call("after_epoch", record)\n'
            "    trainer.epoch, trainer.batch = trainer.epoch + 1, 0\n",
        ),
        loses={"epoch-order": 4},
    ),
    Mistake(
        exercise="epoch",
        name="gives each callback both moments at once",
        source=changed(
            changed(EPOCH, '    trainer.call("after_epoch", record)\n', ""),
            '    trainer.call("on_epoch_end", record)\n',
            "    for callback in trainer.callbacks:\n"
            "        callback.on_epoch_end(trainer, record)\n"
            "        callback.after_epoch(trainer, record)\n",
        ),
        loses={"epoch-order": 4},
    ),
    Mistake(
        exercise="epoch",
        name="goes on with the number of the last batch",
        source=changed(
            EPOCH, "trainer.epoch, trainer.batch = trainer.epoch + 1, 0", "trainer.epoch += 1"
        ),
        loses={"epoch-order": 4},
    ),
    Mistake(
        exercise="epoch",
        name="does not keep the record",
        source=changed(EPOCH, "    trainer.history.records.append(record)\n", ""),
        loses={"epoch-order": 4, "epoch-details": 3},
    ),
    Mistake(
        exercise="epoch",
        name="does not look at the weights",
        source=changed(EPOCH, "    trainer.check_weights()\n", ""),
        loses={"epoch-details": 3},
    ),
    Mistake(
        exercise="epoch",
        name="hears Ctrl-C at the end of the epoch only",
        source=changed(EPOCH, "        trainer.exit_if_interrupted()\n    trainer", "    trainer"),
        loses={"epoch-details": 3},
    ),
    Mistake(
        exercise="epoch",
        name="does not validate",
        source=changed(
            EPOCH, "record_of(trainer, validation, started)", "record_of(trainer, None, started)"
        ),
        loses={"epoch-details": 3},
    ),
    Mistake(
        exercise="epoch",
        name="records the number of the epochs before",
        source=changed(RECORD, "trainer.epoch + 1", "trainer.epoch"),
        loses={"record-values": 2},
    ),
    Mistake(
        exercise="epoch",
        name="writes the validation over the training",
        source=changed(RECORD, "VALIDATION + name: value", "name: value"),
        loses={"record-values": 2, "epoch-details": 3},
    ),
    Mistake(
        exercise="epoch",
        name="takes a validation loss that is NaN",
        source=changed(RECORD, 'not math.isfinite(measured["loss"])', "False"),
        loses={"epoch-details": 3},
    ),
    Mistake(
        exercise="epoch",
        name="records the time of day",
        source=changed(RECORD, "time.perf_counter() - started", "time.perf_counter()"),
        loses={"record-values": 2, "epoch-details": 3},
    ),
    Mistake(
        exercise="early-stopping",
        name="knows one mode",
        source=changed(
            BEST,
            'self.value - value if self.mode == "min" else value - self.value',
            "self.value - value",
        ),
        loses={"best-values": 2},
    ),
    Mistake(
        exercise="early-stopping",
        name="takes an equal value for a better one",
        source=changed(BEST, "better > self.min_delta", "better >= self.min_delta"),
        loses={"best-values": 2},
    ),
    Mistake(
        exercise="early-stopping",
        name="forgets the least difference",
        source=changed(BEST, "better > self.min_delta", "better > 0"),
        loses={"best-values": 2},
    ),
    Mistake(
        exercise="early-stopping",
        name="does not keep the best value",
        source=changed(BEST, "            self.value = value\n", ""),
        loses={"best-values": 2},
    ),
    Mistake(
        exercise="early-stopping",
        name="takes NaN for a better value",
        source=changed(BEST, "better > self.min_delta", "not better <= self.min_delta"),
        loses={"stopping-details": 2},
    ),
    Mistake(
        exercise="early-stopping",
        name="counts all epochs without improvement, not those in a row",
        source=changed(STOPPING, "            self.waited = 0\n", ""),
        loses={"stopping-patience": 3},
    ),
    Mistake(
        exercise="early-stopping",
        name="waits one epoch too long",
        source=changed(
            STOPPING,
            "        if self.waited >= self.patience:\n",
            "        if self.waited > self.patience:\n",
        ),
        loses={"stopping-patience": 3, "stopping-details": 2},
    ),
    Mistake(
        exercise="early-stopping",
        name="keeps the weights without a copy",
        source=changed(
            STOPPING, "copy_tree(trainer.model.state_dict())", "trainer.model.state_dict()"
        ),
        loses={"stopping-patience": 3, "stopping-details": 2},
    ),
    Mistake(
        exercise="early-stopping",
        name="keeps weights always",
        source=changed(STOPPING, "if self.restore_best:", "if True:"),
        loses={"stopping-details": 2},
    ),
    Mistake(
        exercise="early-stopping",
        name="gives the best weights back without a stop",
        source=changed(STOPPING, "self.waited >= self.patience and self.best", "self.best"),
        loses={"stopping-details": 2},
    ),
    Mistake(
        exercise="early-stopping",
        name="stops without a word",
        source=changed(
            STOPPING,
            '            trainer.report(f"{self.best.monitor} {self.best.value} {self.waited}")\n',
            "",
        ),
        loses={"stopping-details": 2},
    ),
    Mistake(
        exercise="resume",
        name="keeps the tensors themselves",
        source=changed(COPY, "tree.detach().clone() if isinstance(tree, Tensor) else tree", "tree"),
        loses={"copies": 2, "refused-as-a-whole": 2},
    ),
    Mistake(
        exercise="resume",
        name="keeps views of the same memory",
        source=changed(COPY, "tree.detach().clone()", "tree.detach()"),
        loses={"copies": 2, "refused-as-a-whole": 2},
    ),
    Mistake(
        exercise="resume",
        name="keeps the history",
        source=changed(COPY, "tree.detach().clone()", "tree.clone()"),
        loses={"copies": 2},
    ),
    Mistake(
        exercise="resume",
        name="copies the first level only",
        source=changed(
            COPY, "{key: copy_tree(value) for key, value in tree.items()}", "dict(tree)"
        ),
        loses={"copies": 2, "refused-as-a-whole": 2},
    ),
    Mistake(
        exercise="resume",
        name="does not go into tuples",
        source=changed(COPY, "(list, tuple)", "list"),
        loses={"copies": 2},
    ),
    Mistake(
        exercise="resume",
        name="does not keep what was before as a copy",
        source=changed(RESTORE, "copy_tree(capture(trainer))", "capture(trainer)"),
        loses={"refused-as-a-whole": 2},
    ),
    Mistake(
        exercise="resume",
        name="does not write back what was before",
        source=changed(
            RESTORE, "        take_over(trainer, before)\n        raise", "        raise"
        ),
        loses={"refused-as-a-whole": 2},
    ),
    Mistake(
        exercise="resume",
        name="swallows the error",
        source=changed(
            RESTORE,
            "        take_over(trainer, before)\n        raise",
            "        take_over(trainer, before)",
        ),
        loses={"refused-as-a-whole": 2},
    ),
    Mistake(
        exercise="resume",
        name="does not look for missing parts",
        source=changed(RESTORE, "if missing:", "if False:"),
        loses={"refused-as-a-whole": 2},
    ),
    Mistake(
        exercise="resume",
        name="refuses what it does not know",
        source=changed(
            RESTORE,
            "sorted(name for name in capture(trainer) if name not in state)",
            "sorted(set(capture(trainer)) ^ set(state))",
        ),
        loses={"refused-as-a-whole": 2},
    ),
    Mistake(
        exercise="resume",
        name="forgets generator and loaders",
        source=changed(
            RESTORE,
            '{"generator": dict(state["generator"]), "loaders": dict(state["loaders"])}',
            "{}",
        ),
        loses={"restored": 3, "refused-as-a-whole": 2},
    ),
    Mistake(
        exercise="first-nan",
        name="names the last",
        source=changed(FIRST, "found[0]", "found[-1]"),
        loses={"first-of-several": 3, "hooks-removed": 2},
    ),
    Mistake(
        exercise="first-nan",
        name="binds the name too late: all hooks know the last one",
        source="""
def first_nonfinite(model, run):
    found, handles = [], []
    for name, m in model.named_modules():
        def hook(module, args, out):
            if not is_finite(out):
                found.append(name)

        handles.append(m.register_forward_hook(hook))
    try:
        with no_grad():
            run()
    finally:
        for handle in handles:
            handle.remove()
    return found[0] if found else None
""",
        loses={"first-of-several": 3, "hooks-removed": 2},
    ),
    Mistake(
        exercise="first-nan",
        name="leaves the hooks",
        source=changed(FIRST, "handle.remove()", "pass"),
        loses={"hooks-removed": 2},
    ),
    Mistake(
        exercise="first-nan",
        name="removes the hooks only if there was no error",
        source=changed(changed(FIRST, "    try:", "    if True:"), "    finally:", "    if True:"),
        loses={"hooks-removed": 2},
    ),
    Mistake(
        exercise="first-nan",
        name="records history",
        source=changed(FIRST, "with no_grad():", "if True:"),
        loses={"hooks-removed": 2},
    ),
    Mistake(
        exercise="first-nan",
        name="looks at what goes in",
        source=changed(FIRST, "is_finite(out)", "is_finite(args)"),
        loses={"first-of-several": 3, "hooks-removed": 2},
    ),
    Mistake(
        exercise="first-nan",
        name="takes no name for none",
        source=changed(
            FIRST,
            "return found[0] if found else None",
            "return found[0] if found and found[0] else None",
        ),
        loses={"first-of-several": 3},
    ),
    Mistake(
        exercise="update",
        name="clears the gradients behind the step",
        source="""
def update(trainer, batches):
    mean = 0.0
    for batch, share in zip(batches, shares(batches), strict=True):
        outputs, targets = trainer.forward(batch)
        loss = trainer.loss_of(outputs, targets)
        value = loss.item()
        trainer.check_loss(value, batch)
        (loss * share).backward()
        mean += share * value
        with no_grad():
            trainer.measure(trainer.averages, value, outputs, targets)
    if trainer.clip_norm is not None:
        clip_grad_norm_(trainer.model.parameters(), trainer.clip_norm)
    trainer.optimizer.step()
    trainer.optimizer.zero_grad()
    trainer.step += 1
    trainer.batch += len(batches)
    return mean
""",
        loses={"update-one": 3},
    ),
    Mistake(
        exercise="update",
        name="keeps the histories of all batches for one backward",
        source="""
def update(trainer, batches):
    trainer.optimizer.zero_grad()
    total = 0.0
    for batch, share in zip(batches, shares(batches), strict=True):
        outputs, targets = trainer.forward(batch)
        loss = trainer.loss_of(outputs, targets)
        trainer.check_loss(loss.item(), batch)
        total = total + loss * share
        with no_grad():
            trainer.measure(trainer.averages, loss.item(), outputs, targets)
    total.backward()
    if trainer.clip_norm is not None:
        clip_grad_norm_(trainer.model.parameters(), trainer.clip_norm)
    trainer.optimizer.step()
    trainer.step += 1
    trainer.batch += len(batches)
    return total.item()
""",
        loses={"update-many": 3},
    ),
    Mistake(
        exercise="update",
        name="clips after each batch",
        source="""
def update(trainer, batches):
    trainer.optimizer.zero_grad()
    mean = 0.0
    for batch, share in zip(batches, shares(batches), strict=True):
        outputs, targets = trainer.forward(batch)
        loss = trainer.loss_of(outputs, targets)
        value = loss.item()
        trainer.check_loss(value, batch)
        (loss * share).backward()
        if trainer.clip_norm is not None:
            clip_grad_norm_(trainer.model.parameters(), trainer.clip_norm)
        mean += share * value
        with no_grad():
            trainer.measure(trainer.averages, value, outputs, targets)
    trainer.optimizer.step()
    trainer.step += 1
    trainer.batch += len(batches)
    return mean
""",
        loses={"update-details": 3},
    ),
    Mistake(
        exercise="epoch",
        name="keeps the record between the two moments of the callbacks",
        source="""
def run_epoch(trainer, loader, validation):
    started = time.perf_counter()
    trainer.begin_epoch()
    trainer.call("on_epoch_start")
    for batches in batched(loader, trainer.accumulate, False):
        loss = trainer.update(batches)
        trainer.call("on_step_end", loss)
        trainer.exit_if_interrupted()
    trainer.check_weights()
    record = record_of(trainer, validation, started)
    trainer.epoch += 1
    trainer.call("on_epoch_end", record)
    trainer.history.records.append(record)
    trainer.batch = 0
    trainer.call("after_epoch", record)
    trainer.exit_if_interrupted()
""",
        loses={"epoch-order": 4},
    ),
    Mistake(
        exercise="early-stopping",
        name="takes back the stop of another callback",
        source="""
class EarlyStopping(tinytorch.training.EarlyStopping):
    def on_epoch_end(self, trainer, record):
        if self.best.improves(record):
            self.waited = 0
            if self.restore_best:
                self.best_weights = copy_tree(trainer.model.state_dict())
        else:
            self.waited += 1
        trainer.should_stop = self.waited >= self.patience
        if trainer.should_stop:
            trainer.report(f"no {self.best.monitor} below {self.best.value} in {self.waited}")
""",
        loses={"stopping-details": 2},
    ),
    Mistake(
        exercise="early-stopping",
        name="gives the best weights back whoever stopped",
        source="""
class EarlyStopping(tinytorch.training.EarlyStopping):
    def on_fit_end(self, trainer):
        if trainer.should_stop and self.best_weights is not None:
            trainer.model.load_state_dict(self.best_weights)
""",
        loses={"stopping-details": 2},
    ),
    Mistake(
        exercise="resume",
        name="knows no Mapping but a dict",
        source="""
def copy_tree(tree):
    if isinstance(tree, dict):
        return {key: copy_tree(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [copy_tree(value) for value in tree]
    return tree.detach().clone() if isinstance(tree, Tensor) else tree
""",
        loses={"copies": 2},
    ),
    Mistake(
        exercise="first-nan",
        name="watches the innermost modules only",
        source="""
def first_nonfinite(model, run):
    found = []

    def watch(name):
        def hook(module, args, out):
            if not is_finite(out):
                found.append(name)
        return hook

    leaves = [(name, m) for name, m in model.named_modules() if not list(m.children())]
    handles = [m.register_forward_hook(watch(name)) for name, m in leaves]
    try:
        with no_grad():
            run()
    finally:
        for handle in handles:
            handle.remove()
    return found[0] if found else None
""",
        loses={"first-of-several": 3},
    ),
]

ALTERNATIVES = [
    Alternative(
        exercise="first-nan",
        name="stops the run at the first by an error of its own",
        source="""
class Found(Exception):
    pass


def first_nonfinite(model, run):
    def watch(name):
        def hook(module, args, out):
            if not is_finite(out):
                raise Found(name)
        return hook

    handles = [m.register_forward_hook(watch(name)) for name, m in model.named_modules()]
    try:
        with no_grad():
            run()
    except Found as found:
        return found.args[0]
    finally:
        for handle in handles:
            handle.remove()
    return None
""",
    ),
    Alternative(
        exercise="measuring",
        name="counts hits, and keeps pairs as it goes",
        source="""
def accuracy(outputs, targets):
    _check_classes(outputs, targets)
    right = 0
    for guess, target in zip(outputs.argmax(1).tolist(), targets.tolist()):
        right += guess == target
    return right / targets.shape[0]


class Averages(tinytorch.training.metrics.Averages):
    def add(self, values, weight):
        self._weight = self._weight + weight
        self._sums.update({n: self._sums.get(n, 0.0) + v * weight for n, v in values.items()})

    def means(self):
        try:
            inverse = 1 / self._weight
            return {name: self._sums[name] * inverse for name in self._sums}
        except ZeroDivisionError:
            raise ValueError("no batch was added") from None
""",
    ),
    Alternative(
        exercise="update",
        name="gives the share as the gradient of the loss, and clips with whatever limit",
        source="""
def shares(batches):
    total = 0
    for batch in batches:
        total += samples_in(batch)
    return [samples_in(batch) / total for batch in batches]


def update(trainer, batches):
    parts = shares(batches)
    values = []
    trainer.optimizer.zero_grad()
    for i, batch in enumerate(batches):
        outputs, targets = trainer.forward(batch)
        loss = trainer.loss_of(outputs, targets)
        values.append(loss.item())
        trainer.check_loss(values[-1], batch)
        with no_grad():
            trainer.measure(trainer.averages, values[-1], outputs, targets)
        loss.backward(tinytorch.full_like(loss, parts[i]))
        trainer.batch += 1
    limit = float("inf") if trainer.clip_norm is None else trainer.clip_norm
    clip_grad_norm_(list(trainer.model.parameters()), limit)
    trainer.optimizer.step()
    trainer.step += 1
    return sum(part * value for part, value in zip(parts, values))
""",
    ),
    Alternative(
        exercise="evaluation",
        name="keeps the modes in a dictionary, and measures in a helper",
        source="""
def evaluate(trainer, loader):
    before = {module: module.training for module in trainer.model.modules()}
    for module in before:
        module.training = False
    try:
        return _measured(trainer, loader)
    finally:
        for module in before:
            module.training = before[module]


@no_grad()
def _measured(trainer, loader):
    averages = Averages()
    for batch in loader:
        outputs, targets = trainer.forward(batch)
        trainer.measure(averages, float(trainer.loss_of(outputs, targets)), outputs, targets)
    return averages.means()
""",
    ),
    Alternative(
        exercise="epoch",
        name="collects batches by hand, and builds the record as one dictionary",
        source="""
def run_epoch(trainer, loader, validation):
    began = time.perf_counter()
    trainer.begin_epoch()
    trainer.call("on_epoch_start")
    waiting = []
    for batch in loader:
        waiting.append(batch)
        if len(waiting) == trainer.accumulate:
            _one(trainer, waiting)
            waiting = []
    if waiting:
        _one(trainer, waiting)
    trainer.check_weights()
    trainer.history.records.append(record_of(trainer, validation, began))
    trainer.epoch += 1
    trainer.batch = 0
    for moment in ("on_epoch_end", "after_epoch"):
        trainer.call(moment, trainer.history.records[-1])
    trainer.exit_if_interrupted()


def _one(trainer, batches):
    trainer.call("on_step_end", trainer.update(batches))
    trainer.exit_if_interrupted()


def record_of(trainer, validation, started):
    tested = {} if validation is None else trainer.evaluate(validation)
    if tested and (math.isnan(tested["loss"]) or math.isinf(tested["loss"])):
        trainer.fail("the validation loss is " + str(tested["loss"]))
    return {
        "epoch": trainer.epoch + 1,
        "step": trainer.step,
        **trainer.averages.means(),
        **{f"val_{name}": tested[name] for name in tested},
        "lr": trainer.optimizer.param_groups[0]["lr"],
        "seconds": time.perf_counter() - started,
    }
""",
    ),
    Alternative(
        exercise="early-stopping",
        name="compares in two branches, and counts first",
        source="""
class Best(tinytorch.training.callbacks.Best):
    def improves(self, record):
        value = value_of(record, self.monitor)
        if self.mode == "min":
            better = value < self.value - self.min_delta
        else:
            better = value > self.value + self.min_delta
        self.value = value if better else self.value
        return better


class EarlyStopping(tinytorch.training.EarlyStopping):
    def on_epoch_end(self, trainer, record):
        self.waited += 1
        if self.best.improves(record):
            self.waited = 0
            self.best_weights = (
                {name: p.detach().clone() for name, p in trainer.model.state_dict().items()}
                if self.restore_best
                else None
            )
        elif self.waited >= self.patience:
            trainer.should_stop = True
            trainer.report(
                f"enough: {self.waited} epochs without a better {self.best.monitor} than "
                f"{self.best.value}"
            )

    def on_fit_end(self, trainer):
        if self.best_weights is None or self.waited < self.patience:
            return
        trainer.model.load_state_dict(self.best_weights)
""",
    ),
    Alternative(
        exercise="resume",
        name="asks for the tensor first, and marks success",
        source="""
def copy_tree(tree):
    if isinstance(tree, Tensor):
        return tree.clone().detach()
    if isinstance(tree, Mapping):
        return dict(zip(tree, map(copy_tree, tree.values())))
    if type(tree) in (list, tuple):
        return list(map(copy_tree, tree))
    return tree


def restore(trainer, state):
    own = capture(trainer)
    lacking = set(own).difference(state)
    if lacking:
        raise DataError("the state lacks " + ", ".join(sorted(lacking)))
    before, done = copy_tree(own), False
    try:
        take_over(trainer, state)
        done = True
    finally:
        if not done:
            take_over(trainer, before)
    trainer.pending = {name: {**state[name]} for name in ("generator", "loaders")}
""",
    ),
    Alternative(
        exercise="first-nan",
        name="removes hooks by an ExitStack, and binds names by partial",
        source="""
from contextlib import ExitStack
from functools import partial


def first_nonfinite(model, run):
    names = []
    with ExitStack() as stack, no_grad():
        for name, module in model.named_modules():
            handle = module.register_forward_hook(partial(_note, names, name))
            stack.callback(handle.remove)
        run()
    return next(iter(names), None)


def _note(names, name, module, args, out):
    if not is_finite(out):
        names.append(name)
""",
    ),
]
