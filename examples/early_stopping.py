import os
import tempfile

import numpy as np
import torch
import torch.nn as nn

import draws


class EarlyStopping:
    """Stops when the validation loss has not improved for `patience` epochs."""

    def __init__(self, patience=3, verbose=False, delta=0, path="checkpoint.pt", trace_func=print):
        self.patience, self.verbose, self.delta, self.path, self.trace_func = (
            patience,
            verbose,
            delta,
            path,
            trace_func,
        )
        self.counter, self.best_score, self.early_stop, self.val_loss_min = 0, None, False, np.inf

    def __call__(self, val_loss, model):
        score = -val_loss
        if self.best_score is None or score >= self.best_score + self.delta:
            self.best_score = score
            self.save_checkpoint(val_loss, model)
            self.counter = 0
        else:
            self.counter += 1
            self.trace_func(f"EarlyStopping counter: {self.counter} out of {self.patience}")
            if self.counter >= self.patience:
                self.early_stop = True

    def save_checkpoint(self, val_loss, model):
        if self.verbose:
            self.trace_func(
                f"Validation loss decreased ({self.val_loss_min:.6f} --> {val_loss:.6f}). Saving model ..."
            )
        torch.save(model.state_dict(), self.path)
        self.val_loss_min = val_loss


class AverageMeter(object):
    def __init__(self, name, fmt=":f"):
        self.name, self.fmt = name, fmt
        self.val = self.avg = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count

    def __str__(self):
        fmtstr = "{name} {val" + self.fmt + "} ({avg" + self.fmt + "})"
        return fmtstr.format(**self.__dict__)


x_train, x_val = draws.randn(20, 8), draws.randn(40, 8)
w = draws.randn(8, 1)
y_train, y_val = x_train @ w + draws.randn(20, 1), x_val @ w + draws.randn(40, 1)
model = draws.init_(nn.Sequential(nn.Linear(8, 64), nn.ELU(), nn.Linear(64, 1)))
criterion = nn.MSELoss()
optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
path = os.path.join(tempfile.mkdtemp(), "best.pt")
stopper = EarlyStopping(patience=3, verbose=True, path=path)
for epoch in range(1, 31):
    model.train()
    meter = AverageMeter("loss", ":.5f")
    for xb, yb in zip(x_train.split(10), y_train.split(10)):
        optimizer.zero_grad()
        loss = criterion(model(xb), yb)
        loss.backward()
        optimizer.step()
        meter.update(loss.item(), xb.size(0))
    model.eval()
    with torch.inference_mode():
        valid_loss = criterion(model(x_val), y_val).item()
    if epoch <= 5:
        print(f"[{epoch:>2}/30] {meter} valid_loss: {valid_loss:.5f}")
    stopper(valid_loss, model)
    if stopper.early_stop:
        print("Early stopping at", epoch)
        break
model.load_state_dict(torch.load(path, weights_only=True))
with torch.no_grad():
    print("best", f"{criterion(model(x_val), y_val).item():.5f}")
