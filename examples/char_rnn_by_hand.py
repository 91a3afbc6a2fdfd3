import torch
from torch import nn
from torch.autograd import Variable

import draws

text = "hello world, hello torch, hold the door"
chars = sorted(list(set(text)))
char_to_ix = {ch: i for i, ch in enumerate(chars)}
vocab_size = len(chars)
print("data has %d characters, %d unique." % (len(text), vocab_size))
hidden_size, seq_length, learning_rate = 16, 8, 0.1


def one_hot(indices):
    out = torch.zeros(len(indices), vocab_size)
    for t, i in enumerate(indices):
        out[t][i] = 1.0
    return out


class RNN(nn.Module):
    def __init__(self, input_size, hidden_size, output_size):
        super().__init__()
        self.hidden_size = hidden_size
        self.i2h = nn.Linear(input_size + hidden_size, hidden_size)
        self.i2o = nn.Linear(input_size + hidden_size, output_size)
        self.softmax = nn.LogSoftmax(dim=1)

    def forward(self, input, hidden):
        combined = torch.cat((input, hidden), 1)
        hidden = torch.tanh(self.i2h(combined))
        output = self.softmax(self.i2o(combined))
        return output, hidden

    def initHidden(self):
        return Variable(torch.zeros(1, self.hidden_size))


rnn = draws.init_(RNN(vocab_size, hidden_size, vocab_size))
criterion = nn.NLLLoss()

p = 0
hidden = rnn.initHidden()
for n in range(6):
    if p + seq_length + 1 >= len(text):
        hidden = rnn.initHidden()
        p = 0
    inputs = one_hot([char_to_ix[ch] for ch in text[p : p + seq_length]])
    targets = torch.LongTensor([char_to_ix[ch] for ch in text[p + 1 : p + seq_length + 1]])
    rnn.zero_grad()
    loss = 0
    outputs = torch.zeros(seq_length, vocab_size)
    for t in range(seq_length):
        output, hidden = rnn(inputs[t].unsqueeze(0), hidden)
        outputs[t] = output[0]
        loss += criterion(output, targets[t].unsqueeze(0))
    loss.backward()
    hidden = hidden.detach()
    nn.utils.clip_grad_norm_(rnn.parameters(), 5.0)
    for param in rnn.parameters():
        param.data.add_(param.grad.data, alpha=-learning_rate)
    total = criterion(outputs, targets)
    print(f"iter {n}, loss: {loss.item() / seq_length:.6f}, again {total.item():.6f}")
    p += seq_length


def sample(h, seed_ix, n):
    x = torch.zeros(1, vocab_size)
    x[0, seed_ix] = 1
    out = []
    with torch.no_grad():
        for _ in range(n):
            logp, h = rnn(x, h)
            topv, topi = logp.topk(1)
            ix = topi[0][0].item()
            x.zero_()
            x[0][ix] = 1
            out.append(chars[ix])
    return "".join(out)


print("----\n %s \n----" % sample(rnn.initHidden(), char_to_ix["h"], 20))
