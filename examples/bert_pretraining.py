"""Masked language modelling and next-sentence prediction, on a vocabulary of twenty words."""

import math
import random

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim

import draws

random.seed(0)
maxlen, batch_size, n_layers, n_heads, d_model, n_segments, vocab = 12, 4, 2, 2, 16, 2, 20
PAD, CLS, SEP, MASK = range(4)


def make_batch():
    batch = []
    for i in range(batch_size):
        a = [random.randrange(4, vocab) for _ in range(4)]
        b = (
            [t + 1 if t + 1 < vocab else 4 for t in a]
            if i % 2
            else [random.randrange(4, vocab) for _ in range(4)]
        )
        input_ids = [CLS] + a + [SEP] + b + [SEP]
        segment_ids = [0] * 6 + [1] * 5
        pos = random.sample([p for p, t in enumerate(input_ids) if t > 3], 2)
        tokens = [input_ids[p] for p in pos]
        for p in pos:
            input_ids[p] = MASK
        n_pad = maxlen - len(input_ids)
        batch.append([input_ids + [PAD] * n_pad, segment_ids + [0] * n_pad, tokens, pos, i % 2])
    return map(torch.LongTensor, zip(*batch))


def gelu(x):
    return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


def get_attn_pad_mask(seq_q, seq_k):
    batch_size, len_q = seq_q.size()
    pad_attn_mask = seq_k.data.eq(PAD).unsqueeze(1)
    return pad_attn_mask.expand(batch_size, len_q, seq_k.size(1))


class EncoderLayer(nn.Module):
    def __init__(self):
        super(EncoderLayer, self).__init__()
        self.W_Q, self.W_K, self.W_V = (nn.Linear(d_model, d_model) for _ in range(3))
        self.fc, self.norm1, self.norm2 = (
            nn.Linear(d_model, d_model),
            nn.LayerNorm(d_model),
            nn.LayerNorm(d_model),
        )
        self.fc1, self.fc2 = nn.Linear(d_model, 32), nn.Linear(32, d_model)

    def forward(self, x, mask):
        b, d_k = x.size(0), d_model // n_heads
        q, k, v = (
            w(x).view(b, -1, n_heads, d_k).transpose(1, 2) for w in (self.W_Q, self.W_K, self.W_V)
        )
        scores = torch.matmul(q, k.transpose(-1, -2)) / np.sqrt(d_k)
        scores.masked_fill_(mask.unsqueeze(1).repeat(1, n_heads, 1, 1), -1e9)
        context = torch.matmul(nn.Softmax(dim=-1)(scores), v)
        x = self.norm1(x + self.fc(context.transpose(1, 2).contiguous().view(b, -1, d_model)))
        return self.norm2(x + self.fc2(gelu(self.fc1(x))))


class BERT(nn.Module):
    def __init__(self):
        super(BERT, self).__init__()
        self.tok_embed, self.pos_embed, self.seg_embed = (
            nn.Embedding(vocab, d_model),
            nn.Embedding(maxlen, d_model),
            nn.Embedding(n_segments, d_model),
        )
        self.norm = nn.LayerNorm(d_model)
        self.layers = nn.ModuleList([EncoderLayer() for _ in range(n_layers)])
        self.fc, self.activ1, self.linear = (
            nn.Linear(d_model, d_model),
            nn.Tanh(),
            nn.Linear(d_model, d_model),
        )
        self.classifier = nn.Linear(d_model, 2)
        n_vocab, n_dim = self.tok_embed.weight.size()
        self.decoder = nn.Linear(n_dim, n_vocab, bias=False)
        self.decoder.weight = self.tok_embed.weight
        self.decoder_bias = nn.Parameter(torch.zeros(n_vocab))

    def forward(self, input_ids, segment_ids, masked_pos):
        pos = torch.arange(input_ids.size(1), dtype=torch.long)
        pos = pos.unsqueeze(0).expand_as(input_ids)
        output = self.norm(
            self.tok_embed(input_ids) + self.pos_embed(pos) + self.seg_embed(segment_ids)
        )
        mask = get_attn_pad_mask(input_ids, input_ids)
        for layer in self.layers:
            output = layer(output, mask)
        logits_clsf = self.classifier(self.activ1(self.fc(output[:, 0])))
        masked_pos = masked_pos[:, :, None].expand(-1, -1, output.size(-1))
        h_masked = gelu(self.linear(torch.gather(output, 1, masked_pos)))
        return self.decoder(h_masked) + self.decoder_bias, logits_clsf


model = draws.init_(BERT())
criterion = nn.CrossEntropyLoss(reduction="none")
optimizer = optim.Adam(model.parameters(), lr=0.003)
for epoch in range(5):
    input_ids, segment_ids, masked_tokens, masked_pos, is_next = make_batch()
    optimizer.zero_grad()
    logits_lm, logits_clsf = model(input_ids, segment_ids, masked_pos)
    loss_lm = criterion(logits_lm.transpose(1, 2), masked_tokens).float().mean()
    loss = loss_lm + criterion(logits_clsf, is_next).mean()
    loss.backward()
    optimizer.step()
    print(
        "Epoch:", "%04d" % (epoch + 1), "cost =", "{:.6f}".format(loss), masked_tokens.tolist()[0]
    )
print(model.decoder.weight is model.tok_embed.weight, len(list(model.parameters())))
