import torch
import torch.nn as nn
import torch.nn.functional as F

import draws


class SimCLR:
    def __init__(self, model, optimizer, temperature=0.2, n_views=2):
        self.model, self.optimizer, self.temperature, self.n_views = (
            model,
            optimizer,
            temperature,
            n_views,
        )
        self.criterion = torch.nn.CrossEntropyLoss()

    def info_nce_loss(self, features):
        batch_size = features.shape[0] // self.n_views
        labels = torch.cat([torch.arange(batch_size) for i in range(self.n_views)], dim=0)
        labels = (labels.unsqueeze(0) == labels.unsqueeze(1)).float()
        features = F.normalize(features, dim=1)
        similarity_matrix = torch.matmul(features, features.T)
        mask = torch.eye(labels.shape[0], dtype=torch.bool)
        labels = labels[~mask].view(labels.shape[0], -1)
        similarity_matrix = similarity_matrix[~mask].view(similarity_matrix.shape[0], -1)
        positives = similarity_matrix[labels.bool()].view(labels.shape[0], -1)
        negatives = similarity_matrix[~labels.bool()].view(similarity_matrix.shape[0], -1)
        logits = torch.cat([positives, negatives], dim=1)
        labels = torch.zeros(logits.shape[0], dtype=torch.long)
        return logits / self.temperature, labels

    def train(self, loader):
        for n_iter, images in enumerate(loader):
            images = torch.cat(images, dim=0)
            logits, labels = self.info_nce_loss(self.model(images))
            loss = self.criterion(logits, labels)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            top1, top5 = accuracy(logits, labels, topk=(1, 5))
            print(
                f"{n_iter}\tLoss: {loss.item():.6f}\tTop1 accuracy: {top1[0]:.2f}\tTop5: {top5[0]:.2f}"
            )


def accuracy(output, target, topk=(1,)):
    with torch.no_grad():
        maxk = max(topk)
        batch_size = target.size(0)
        _, pred = output.topk(maxk, 1, True, True)
        pred = pred.t()
        correct = pred.eq(target.view(1, -1).expand_as(pred))
        res = []
        for k in topk:
            correct_k = correct[:k].reshape(-1).float().sum(0, keepdim=True)
            res.append(correct_k.mul_(100.0 / batch_size))
        return res


def views(n):
    base = draws.randn(n, 1, 8, 8)
    return [(base + 0.2 * draws.randn_like(base)).roll(shift, dims=3) for shift in (0, 1)]


backbone = nn.Sequential(
    nn.Conv2d(1, 6, 3, padding=1),
    nn.BatchNorm2d(6),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d((2, 2)),
    nn.Flatten(),
)
model = nn.Sequential()
model.add_module("backbone", backbone)
model.add_module("projection", nn.Sequential(nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 8)))
draws.init_(model)
optimizer = torch.optim.Adam(model.parameters(), 3e-3, weight_decay=1e-4)
SimCLR(model, optimizer).train([views(6) for _ in range(5)])
print([name for name, _ in model.named_parameters()][:3])
