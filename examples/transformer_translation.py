"""nn.Transformer learns to reverse; masks as in a translation tutorial."""

import math

import torch
import torch.nn as nn
from torch import Tensor
from torch.nn import Transformer
from torch.nn.utils.rnn import pad_sequence

import draws

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
UNK_IDX, PAD_IDX, BOS_IDX, EOS_IDX, VOCAB = 0, 1, 2, 3, 14


class PositionalEncoding(nn.Module):
    def __init__(self, emb_size: int, dropout: float, maxlen: int = 50):
        super(PositionalEncoding, self).__init__()
        den = torch.exp(-torch.arange(0, emb_size, 2) * math.log(10000) / emb_size)
        pos = torch.arange(0, maxlen).reshape(maxlen, 1)
        pos_embedding = torch.zeros((maxlen, emb_size))
        pos_embedding[:, 0::2] = torch.sin(pos * den)
        pos_embedding[:, 1::2] = torch.cos(pos * den)
        pos_embedding = pos_embedding.unsqueeze(-2)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("pos_embedding", pos_embedding)

    def forward(self, token_embedding: Tensor):
        return self.dropout(token_embedding + self.pos_embedding[: token_embedding.size(0), :])


class TokenEmbedding(nn.Module):
    def __init__(self, vocab_size: int, emb_size):
        super(TokenEmbedding, self).__init__()
        self.embedding = nn.Embedding(vocab_size, emb_size)
        self.emb_size = emb_size

    def forward(self, tokens: Tensor):
        return self.embedding(tokens.long()) * math.sqrt(self.emb_size)


class Seq2SeqTransformer(nn.Module):
    def __init__(self, layers, emb_size, nhead, vocab, dim_feedforward=32, dropout=0.0):
        super(Seq2SeqTransformer, self).__init__()
        self.transformer = Transformer(
            d_model=emb_size,
            nhead=nhead,
            num_encoder_layers=layers,
            num_decoder_layers=layers,
            dim_feedforward=dim_feedforward,
            dropout=dropout,
        )
        self.generator = nn.Linear(emb_size, vocab)
        self.src_tok_emb = TokenEmbedding(vocab, emb_size)
        self.tgt_tok_emb = TokenEmbedding(vocab, emb_size)
        self.positional_encoding = PositionalEncoding(emb_size, dropout=dropout)

    def forward(
        self,
        src,
        trg,
        src_mask,
        tgt_mask,
        src_padding_mask,
        tgt_padding_mask,
        memory_key_padding_mask,
    ):
        src_emb = self.positional_encoding(self.src_tok_emb(src))
        tgt_emb = self.positional_encoding(self.tgt_tok_emb(trg))
        outs = self.transformer(
            src_emb,
            tgt_emb,
            src_mask,
            tgt_mask,
            None,
            src_padding_mask,
            tgt_padding_mask,
            memory_key_padding_mask,
        )
        return self.generator(outs)


def generate_square_subsequent_mask(sz):
    mask = (torch.triu(torch.ones((sz, sz), device=DEVICE)) == 1).transpose(0, 1)
    return mask.float().masked_fill(mask == 0, float("-inf")).masked_fill(mask == 1, float(0.0))


def create_mask(src, tgt):
    src_seq_len, tgt_seq_len = src.shape[0], tgt.shape[0]
    tgt_mask = generate_square_subsequent_mask(tgt_seq_len)
    src_mask = torch.zeros((src_seq_len, src_seq_len), device=DEVICE)
    src_padding_mask = (
        (src == PAD_IDX)
        .transpose(0, 1)
        .float()
        .masked_fill((src == PAD_IDX).transpose(0, 1), float("-inf"))
    )
    tgt_padding_mask = (
        (tgt == PAD_IDX)
        .transpose(0, 1)
        .float()
        .masked_fill((tgt == PAD_IDX).transpose(0, 1), float("-inf"))
    )
    return src_mask, tgt_mask, src_padding_mask, tgt_padding_mask


def batch(n):
    seqs = [draws.randint(4, VOCAB, (int(k),)) for k in draws.randint(2, 6, (n,))]
    wrap = lambda s: torch.cat((torch.tensor([BOS_IDX]), s, torch.tensor([EOS_IDX])))
    return (
        pad_sequence([wrap(s) for s in seqs], padding_value=PAD_IDX),
        pad_sequence([wrap(s.flip(0)) for s in seqs], padding_value=PAD_IDX),
    )


model = Seq2SeqTransformer(1, 16, 2, VOCAB)
draws.init_(model)
loss_fn = torch.nn.CrossEntropyLoss(ignore_index=PAD_IDX)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, betas=(0.9, 0.98), eps=1e-9)
for step in range(5):
    src, tgt = batch(6)
    tgt_input, tgt_out = tgt[:-1, :], tgt[1:, :]
    src_mask, tgt_mask, src_padding_mask, tgt_padding_mask = create_mask(src, tgt_input)
    logits = model(
        src, tgt_input, src_mask, tgt_mask, src_padding_mask, tgt_padding_mask, src_padding_mask
    )
    optimizer.zero_grad()
    loss = loss_fn(logits.reshape(-1, logits.shape[-1]), tgt_out.reshape(-1))
    loss.backward()
    optimizer.step()
    print(f"step {step}: Train loss: {loss.item():.5f}", tuple(logits.shape))
