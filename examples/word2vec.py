"""Skip-gram with negative sampling, and nearest words by cosine."""

from collections import Counter

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import optim

import draws

corpus = """we are about to study the idea of a computational process computational processes are
abstract beings that inhabit computers as they evolve processes manipulate other abstract things
called data the evolution of a process is directed by a pattern of rules called a program people
create programs to direct processes in effect we conjure the spirits of the computer with our spells""".split()

counts = Counter(corpus)
vocab = sorted(counts)
word_to_ix = {w: i for i, w in enumerate(vocab)}
window, negatives, dim = 2, 3, 12
pairs = [
    (word_to_ix[corpus[i]], word_to_ix[corpus[j]])
    for i in range(len(corpus))
    for j in range(max(0, i - window), min(len(corpus), i + window + 1))
    if i != j
]
freq = torch.tensor([counts[w] for w in vocab], dtype=torch.float) ** 0.75
freq /= freq.sum()
print(len(vocab), len(pairs), f"{freq.max().item():.5f}")


class SkipGram(nn.Module):
    def __init__(self, vocab_size, emb_dimension):
        super(SkipGram, self).__init__()
        self.u_embeddings = nn.Embedding(vocab_size, emb_dimension)
        self.v_embeddings = nn.Embedding(vocab_size, emb_dimension)
        initrange = 1.0 / emb_dimension
        self.u_embeddings.weight.data.copy_(
            (draws.rand(vocab_size, emb_dimension) * 2 - 1) * initrange
        )
        nn.init.constant_(self.v_embeddings.weight.data, 0)

    def forward(self, pos_u, pos_v, neg_v):
        emb_u = self.u_embeddings(pos_u)
        emb_v = self.v_embeddings(pos_v)
        emb_neg_v = self.v_embeddings(neg_v)
        score = torch.sum(torch.mul(emb_u, emb_v), dim=1)
        score = torch.clamp(score, max=10, min=-10)
        score = -F.logsigmoid(score)
        neg_score = torch.bmm(emb_neg_v, emb_u.unsqueeze(2)).squeeze()
        neg_score = torch.clamp(neg_score, max=10, min=-10)
        neg_score = -torch.sum(F.logsigmoid(-neg_score), dim=1)
        return torch.mean(score + neg_score)


model = draws and SkipGram(len(vocab), dim)
optimizer = optim.Adagrad(model.parameters(), lr=0.1)
data = torch.LongTensor(pairs)
for epoch in range(5):
    total = 0.0
    for batch in data.split(64):
        n = draws.multinomial(freq.expand(len(batch) * negatives, -1)).view(len(batch), negatives)
        optimizer.zero_grad()
        loss = model(batch[:, 0], batch[:, 1], n)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(batch)
    print("epoch %d loss %.6f" % (epoch, total / len(data)))

W = F.normalize(model.u_embeddings.weight.detach(), dim=1)
for w in ["processes", "computer"]:
    sims = W @ W[word_to_ix[w]]
    best = sims.argsort(descending=True)[1:3]
    print(w, [(vocab[i], round(sims[i].item(), 3)) for i in best])
