import torch
import torch.nn as nn
import torch.optim as optim
from torch.utils.data import DataLoader, Dataset, random_split

import draws


class RatingDataset(Dataset):
    def __init__(self, users, items, ratings):
        self.users, self.items, self.ratings = users, items, ratings

    def __len__(self):
        return len(self.ratings)

    def __getitem__(self, i):
        return {"user": self.users[i], "item": self.items[i], "rating": self.ratings[i]}


class MatrixFactorization(nn.Module):
    def __init__(self, n_users, n_items, n_factors=4):
        super().__init__()
        self.user_factors = nn.Embedding(n_users, n_factors)
        self.item_factors = nn.Embedding(n_items, n_factors)
        self.user_biases = nn.Embedding(n_users, 1)
        self.item_biases = nn.Embedding(n_items, 1)
        self.bias = nn.Parameter(torch.tensor(0.0))
        self.user_factors.weight.data.copy_(draws.randn(n_users, n_factors) * 0.1)
        self.item_factors.weight.data.copy_(draws.randn(n_items, n_factors) * 0.1)
        nn.init.constant_(self.user_biases.weight, 0.0)
        nn.init.constant_(self.item_biases.weight, 0.0)

    def forward(self, user, item):
        pred = self.bias + self.user_biases(user) + self.item_biases(item)
        pred += (self.user_factors(user) * self.item_factors(item)).sum(dim=1, keepdim=True)
        return pred.squeeze()


n_users, n_items = 12, 15
u, v = draws.randn(n_users, 2), draws.randn(n_items, 2)
users = draws.randint(0, n_users, (120,))
items = draws.randint(0, n_items, (120,))
ratings = ((u[users] * v[items]).sum(1) + 3).clamp(1, 5)
dataset = RatingDataset(users, items, ratings)
train_set, valid_set = (
    torch.utils.data.Subset(dataset, range(96)),
    torch.utils.data.Subset(dataset, range(96, 120)),
)
train_loader = DataLoader(train_set, batch_size=32, shuffle=False)
valid_loader = DataLoader(valid_set, batch_size=24)
model = MatrixFactorization(n_users, n_items)
optimizer = optim.SGD(
    [
        {"params": [model.bias], "lr": 0.1},
        {"params": [p for n, p in model.named_parameters() if n != "bias"], "weight_decay": 1e-5},
    ],
    lr=0.3,
    momentum=0.5,
)
criterion = nn.MSELoss()
for epoch in range(5):
    model.train()
    losses = []
    for batch in train_loader:
        pred = model(batch["user"], batch["item"])
        loss = criterion(pred, batch["rating"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        batch = next(iter(valid_loader))
        rmse = torch.sqrt(criterion(model(batch["user"], batch["item"]), batch["rating"]))
    print(f"epoch {epoch}: train {sum(losses) / len(losses):.6f} valid rmse {rmse.item():.6f}")
a, b = random_split(dataset, [100, 20])
print(len(a), len(b), optimizer.param_groups[0]["lr"])
