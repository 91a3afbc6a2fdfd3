import torch
import torch.nn as nn
import torch.optim as optim

import draws


def rosenbrock(x):
    return (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2


x = torch.tensor([-1.2, 1.0], dtype=torch.float64, requires_grad=True)
optimizer = optim.LBFGS([x], lr=1, max_iter=4, line_search_fn="strong_wolfe")
for i in range(6):

    def closure():
        optimizer.zero_grad()
        loss = rosenbrock(x)
        loss.backward()
        return loss

    loss = optimizer.step(closure)
    print(f"{i} {loss.item():.8f}")
print([round(v, 3) for v in x.tolist()])


class Sequence(nn.Module):
    """Two LSTM cells that predict a sine wave."""

    def __init__(self):
        super(Sequence, self).__init__()
        self.lstm1 = nn.LSTMCell(1, 8)
        self.lstm2 = nn.LSTMCell(8, 8)
        self.linear = nn.Linear(8, 1)

    def forward(self, input, future=0):
        outputs = []
        h_t = torch.zeros(input.size(0), 8, dtype=torch.double)
        c_t = torch.zeros(input.size(0), 8, dtype=torch.double)
        h_t2 = torch.zeros(input.size(0), 8, dtype=torch.double)
        c_t2 = torch.zeros(input.size(0), 8, dtype=torch.double)
        for input_t in input.split(1, dim=1):
            h_t, c_t = self.lstm1(input_t, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            output = self.linear(h_t2)
            outputs += [output]
        for i in range(future):
            h_t, c_t = self.lstm1(output, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            output = self.linear(h_t2)
            outputs += [output]
        return torch.cat(outputs, dim=1)


t = torch.arange(0, 21, dtype=torch.float64)
data = torch.stack([torch.sin(t * 0.3 + phase) for phase in (0.0, 1.0, 2.0)])
input, target = data[:, :-1], data[:, 1:]
seq = draws.init_(Sequence().double())
criterion = nn.MSELoss()
optimizer = optim.LBFGS(seq.parameters(), lr=0.5, max_iter=3)
for i in range(3):
    print("STEP: ", i)

    def closure():
        optimizer.zero_grad()
        out = seq(input)
        loss = criterion(out, target)
        print("loss: %.7f" % loss.item())
        loss.backward()
        return loss

    optimizer.step(closure)
with torch.no_grad():
    pred = seq(input, future=5)
    print(tuple(pred.shape), "test loss: %.5f" % criterion(pred[:, :-5], target).item())
