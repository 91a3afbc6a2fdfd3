import torch
import torch.nn as nn
import torch.nn.functional as F

import draws


class Expert(nn.Module):
    def __init__(self, n_embd):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(n_embd, 4 * n_embd), nn.ReLU(), nn.Linear(4 * n_embd, n_embd)
        )

    def forward(self, x):
        return self.net(x)


class TopkRouter(nn.Module):
    def __init__(self, n_embed, num_experts, top_k):
        super().__init__()
        self.top_k = top_k
        self.linear = nn.Linear(n_embed, num_experts)

    def forward(self, mh_output):
        logits = self.linear(mh_output)
        top_k_logits, indices = logits.topk(self.top_k, dim=-1)
        zeros = torch.full_like(logits, float("-inf"))
        sparse_logits = zeros.scatter(-1, indices, top_k_logits)
        return F.softmax(sparse_logits, dim=-1), indices


class SparseMoE(nn.Module):
    def __init__(self, n_embed, num_experts, top_k):
        super().__init__()
        self.router = TopkRouter(n_embed, num_experts, top_k)
        self.experts = nn.ModuleList([Expert(n_embed) for _ in range(num_experts)])

    def forward(self, x):
        gating_output, indices = self.router(x)
        final_output = torch.zeros_like(x)
        flat_x = x.view(-1, x.size(-1))
        flat_gating = gating_output.view(-1, gating_output.size(-1))
        for i, expert in enumerate(self.experts):
            expert_mask = (indices == i).any(dim=-1)
            flat_mask = expert_mask.view(-1)
            if flat_mask.any():
                expert_output = expert(flat_x[flat_mask])
                gating_scores = flat_gating[flat_mask, i].unsqueeze(1)
                final_output[expert_mask] += expert_output * gating_scores
        importance = gating_output.sum(dim=(0, 1))
        return final_output, (importance.std() / importance.mean()) ** 2


class Model(nn.Module):
    def __init__(self, vocab=20, dim=12):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.moe = SparseMoE(dim, num_experts=4, top_k=2)
        self.ln, self.head = nn.LayerNorm(dim), nn.Linear(dim, vocab)

    def forward(self, idx):
        x = self.embed(idx)
        y, balance = self.moe(self.ln(x))
        return self.head(x + y), balance


model = draws.init_(Model())
optimizer = torch.optim.Adamax(model.parameters(), lr=1e-2)
for step in range(5):
    idx = draws.randint(0, 20, (4, 6))
    logits, balance = model(idx)
    loss = F.cross_entropy(logits.flatten(0, 1), ((idx + 1) % 20).flatten())
    total = loss + 0.01 * balance
    optimizer.zero_grad()
    total.backward()
    optimizer.step()
    used = torch.bincount(model.moe.router(model.ln(model.embed(idx)))[1].flatten(), minlength=4)
    print(
        f"step {step} loss {loss.item():.6f} balance {balance.item():.6f} used {used.sum().item()}"
    )
