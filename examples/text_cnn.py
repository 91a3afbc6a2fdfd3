import torch
import torch.nn as nn
import torch.nn.functional as F

import draws


class TextCNN(nn.Module):
    def __init__(self, vocab, dim=8, kernels=(2, 3, 4), channels=6, classes=2):
        super(TextCNN, self).__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.convs1 = nn.ModuleList([nn.Conv2d(1, channels, (K, dim)) for K in kernels])
        self.dropout = nn.Dropout(0.0)
        self.fc1 = nn.Linear(len(kernels) * channels, classes)

    def forward(self, x):
        x = self.embed(x)  # (N, W, D)
        x = x.unsqueeze(1)  # (N, Ci, W, D)
        x = [F.relu(conv(x)).squeeze(3) for conv in self.convs1]
        x = [F.max_pool1d(i, i.size(2)).squeeze(2) for i in x]
        x = torch.cat(x, 1)
        return self.fc1(self.dropout(x))


positive = "good great lovely fun happy".split()
negative = "bad awful boring sad dull".split()
filler = "the a film was it this movie".split()
vocab = {w: i for i, w in enumerate(positive + negative + filler)}


def sentence(label):
    words = [filler[i] for i in draws.randint(0, len(filler), (6,)).tolist()]
    words[draws.randint(0, 6, (1,)).item()] = (positive if label else negative)[
        draws.randint(0, 5, (1,)).item()
    ]
    return [vocab[w] for w in words]


def batch(n=16):
    labels = [i % 2 for i in range(n)]
    return torch.LongTensor([sentence(l) for l in labels]), torch.FloatTensor(labels).type(
        torch.LongTensor
    )


model = draws.init_(TextCNN(len(vocab)))
optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0, rho=0.95)
for step in range(6):
    feature, target = batch()
    optimizer.zero_grad()
    logit = model(feature)
    loss = F.cross_entropy(logit, target)
    loss.backward()
    optimizer.step()
    corrects = (torch.max(logit, 1)[1].view(target.size()).data == target.data).sum()
    accuracy = 100.0 * corrects / 16
    print(
        "Batch[{}] - loss: {:.6f}  acc: {:.4f}%({}/{})".format(
            step, loss.item(), accuracy, corrects, 16
        )
    )
print(model.convs1[0].weight.shape, torch.sigmoid(logit[0]).sum().item() > 0)
