"""Reverse a sequence: a GRU encoder over packed sequences, a decoder with attention."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import optim
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

import draws

PAD, SOS, EOS, VOCAB, HIDDEN = 0, 1, 2, 12, 16


class EncoderRNN(nn.Module):
    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.embedding = nn.Embedding(input_size, hidden_size, padding_idx=PAD)
        self.gru = nn.GRU(hidden_size, hidden_size, batch_first=True, bidirectional=True)
        self.reduce = nn.Linear(2 * hidden_size, hidden_size)

    def forward(self, input, lengths):
        embedded = self.embedding(input)
        packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=True)
        output, hidden = self.gru(packed)
        output, out_lengths = pad_packed_sequence(output, batch_first=True)
        hidden = torch.tanh(self.reduce(torch.cat([hidden[-2], hidden[-1]], dim=1))).unsqueeze(0)
        return self.reduce(output), hidden, out_lengths


class BahdanauAttention(nn.Module):
    def __init__(self, hidden_size):
        super().__init__()
        self.Wa = nn.Linear(hidden_size, hidden_size)
        self.Ua = nn.Linear(hidden_size, hidden_size)
        self.Va = nn.Linear(hidden_size, 1)

    def forward(self, query, keys, mask):
        scores = self.Va(torch.tanh(self.Wa(query) + self.Ua(keys)))
        scores = scores.squeeze(2).unsqueeze(1)
        scores = scores.masked_fill(mask.unsqueeze(1), float("-inf"))
        weights = F.softmax(scores, dim=-1)
        return torch.bmm(weights, keys), weights


class AttnDecoderRNN(nn.Module):
    def __init__(self, hidden_size, output_size):
        super().__init__()
        self.embedding = nn.Embedding(output_size, hidden_size)
        self.attention = BahdanauAttention(hidden_size)
        self.gru = nn.GRU(2 * hidden_size, hidden_size, batch_first=True)
        self.out = nn.Linear(hidden_size, output_size)

    def forward(self, encoder_outputs, hidden, mask, target):
        batch_size = encoder_outputs.size(0)
        decoder_input = torch.empty(batch_size, 1, dtype=torch.long).fill_(SOS)
        outputs = []
        for i in range(target.size(1)):
            embedded = self.embedding(decoder_input)
            context, weights = self.attention(hidden.permute(1, 0, 2), encoder_outputs, mask)
            output, hidden = self.gru(torch.cat((embedded, context), dim=2), hidden)
            outputs.append(self.out(output))
            decoder_input = target[:, i].unsqueeze(1)  # teacher forcing
        return F.log_softmax(torch.cat(outputs, dim=1), dim=-1), weights


def batch(n):
    lengths = sorted((int(v) for v in draws.randint(2, 7, (n,))), reverse=True)
    seqs = [draws.randint(3, VOCAB, (k,)) for k in lengths]
    source = pad_sequence(seqs, batch_first=True, padding_value=PAD)
    target = pad_sequence(
        [torch.cat([s.flip(0), torch.tensor([EOS])]) for s in seqs], batch_first=True
    )
    return source, torch.tensor(lengths), target


encoder = draws.init_(EncoderRNN(VOCAB, HIDDEN))
decoder = draws.init_(AttnDecoderRNN(HIDDEN, VOCAB))
encoder_optimizer = optim.Adam(encoder.parameters(), lr=1e-2)
decoder_optimizer = optim.Adam(decoder.parameters(), lr=1e-2)
criterion = nn.NLLLoss(ignore_index=PAD)
for step in range(5):
    source, lengths, target = batch(6)
    encoder_optimizer.zero_grad()
    decoder_optimizer.zero_grad()
    encoder_outputs, hidden, out_lengths = encoder(source, lengths)
    mask = torch.arange(source.size(1))[None, :] >= lengths[:, None]
    logp, weights = decoder(encoder_outputs, hidden, mask, target)
    loss = criterion(logp.view(-1, logp.size(-1)), target.view(-1))
    loss.backward()
    encoder_optimizer.step()
    decoder_optimizer.step()
    print(
        "step",
        step,
        "loss %.6f" % loss.item(),
        out_lengths.tolist(),
        f"{weights[0].sum().item():.4f}",
    )
