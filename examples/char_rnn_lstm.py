import argparse
import math

import torch
import torch.nn as nn
import torch.optim as optim

import draws

parser = argparse.ArgumentParser(description="character-level LSTM language model")
parser.add_argument("--hidden", type=int, default=24)
parser.add_argument("--layers", type=int, default=2)
parser.add_argument("--bptt", type=int, default=10)
parser.add_argument("--lr", type=float, default=1e-2)
parser.add_argument("--clip", type=float, default=0.25)
parser.add_argument(
    "--tied", action="store_true", help="tie the word embedding and softmax weights"
)
args = parser.parse_args()

text = "the quick brown fox jumps over the lazy dog. " * 6
vocab = {c: i for i, c in enumerate(sorted(set(text)))}
ids = torch.tensor([vocab[c] for c in text], dtype=torch.long)


def batchify(data, bsz):
    nbatch = data.size(0) // bsz
    data = data.narrow(0, 0, nbatch * bsz)
    return data.view(bsz, -1).t().contiguous()


def get_batch(source, i):
    seq_len = min(args.bptt, len(source) - 1 - i)
    return source[i : i + seq_len], source[i + 1 : i + 1 + seq_len].view(-1)


class RNNModel(nn.Module):
    def __init__(self, ntoken, ninp, nhid, nlayers, tie_weights=False):
        super(RNNModel, self).__init__()
        self.encoder = nn.Embedding(ntoken, ninp)
        self.rnn = nn.LSTM(ninp, nhid, nlayers)
        self.decoder = nn.Linear(nhid, ntoken)
        if tie_weights:
            self.decoder.weight = self.encoder.weight
        self.nhid, self.nlayers = nhid, nlayers
        self.init_weights()

    def init_weights(self):
        draws.init_(self)
        nn.init.zeros_(self.decoder.bias)

    def forward(self, input, hidden):
        emb = self.encoder(input)
        output, hidden = self.rnn(emb, hidden)
        decoded = self.decoder(output)
        return decoded.view(-1, decoded.size(2)), hidden

    def init_hidden(self, bsz):
        weight = next(self.parameters())
        return (
            weight.new_zeros(self.nlayers, bsz, self.nhid),
            weight.new_zeros(self.nlayers, bsz, self.nhid),
        )


def repackage_hidden(h):
    """Wraps hidden states in new Tensors, to detach them from their history."""
    if isinstance(h, torch.Tensor):
        return h.detach()
    return tuple(repackage_hidden(v) for v in h)


data = batchify(ids, 4)
model = RNNModel(len(vocab), args.hidden, args.hidden, args.layers, args.tied)
print(
    sum(p.numel() for p in model.parameters()),
    [tuple(p.size()) for p in model.rnn.parameters()][:4],
)
criterion = nn.CrossEntropyLoss()
optimizer = optim.Adam(model.parameters(), lr=args.lr, betas=(0.9, 0.99))
hidden = model.init_hidden(4)
total_loss = 0.0
for batch, i in enumerate(range(0, data.size(0) - 1, args.bptt)):
    inputs, targets = get_batch(data, i)
    hidden = repackage_hidden(hidden)
    optimizer.zero_grad()
    output, hidden = model(inputs, hidden)
    loss = criterion(output, targets)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
    optimizer.step()
    total_loss += loss.item()
    print(
        "| batch {:3d} | loss {:5.6f} | ppl {:8.3f} | norm {:.4f}".format(
            batch, loss.item(), math.exp(loss.item()), norm
        )
    )
    if batch == 5:
        break
model.eval()
with torch.no_grad():
    out, (h, c) = model(data[:5], model.init_hidden(4))
print("hidden", tuple(h.shape), tuple(c.shape), f"{h.abs().mean().item():.6f}")
