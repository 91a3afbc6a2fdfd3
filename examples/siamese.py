import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import optim
from torch.utils.data import DataLoader, Dataset

import draws

random.seed(0)


class SiameseDataset(Dataset):
    """Pairs of small pictures: of one class, or of two."""

    def __init__(self, images, labels):
        self.images, self.labels = images, labels

    def __getitem__(self, index):
        i = random.randrange(len(self.images))
        should_get_same_class = random.randint(0, 1)
        while True:
            j = random.randrange(len(self.images))
            if (self.labels[i] == self.labels[j]) == bool(should_get_same_class):
                break
        return (
            self.images[i],
            self.images[j],
            torch.tensor([int(self.labels[i] != self.labels[j])], dtype=torch.float32),
        )

    def __len__(self):
        return 40


class SiameseNetwork(nn.Module):
    def __init__(self):
        super(SiameseNetwork, self).__init__()
        self.cnn1 = nn.Sequential(
            nn.ReflectionPad2d(1),
            nn.Conv2d(1, 4, kernel_size=3),
            nn.ReLU(inplace=True),
            nn.BatchNorm2d(4),
            nn.ReflectionPad2d(1),
            nn.Conv2d(4, 8, kernel_size=3),
            nn.ReLU(inplace=True),
            nn.BatchNorm2d(8),
            nn.MaxPool2d(2, stride=2),
        )
        self.fc1 = nn.Sequential(nn.Linear(8 * 4 * 4, 16), nn.ReLU(inplace=True), nn.Linear(16, 4))

    def forward_once(self, x):
        output = self.cnn1(x)
        output = output.view(output.size()[0], -1)
        return self.fc1(output)

    def forward(self, input1, input2):
        return self.forward_once(input1), self.forward_once(input2)


class ContrastiveLoss(torch.nn.Module):
    def __init__(self, margin=2.0):
        super(ContrastiveLoss, self).__init__()
        self.margin = margin

    def forward(self, output1, output2, label):
        euclidean_distance = F.pairwise_distance(output1, output2, keepdim=True)
        return torch.mean(
            (1 - label) * torch.pow(euclidean_distance, 2)
            + label * torch.pow(torch.clamp(self.margin - euclidean_distance, min=0.0), 2)
        )


labels = [i % 4 for i in range(20)]
images = draws.randn(20, 1, 8, 8) * 0.3
for i, l in enumerate(labels):
    images[i, 0, 2 * l : 2 * l + 2] += 1.0
loader = DataLoader(SiameseDataset(images, labels), shuffle=False, num_workers=0, batch_size=8)
net = draws.init_(SiameseNetwork())
criterion = ContrastiveLoss()
optimizer = optim.Adam(net.parameters(), lr=0.005)
for epoch in range(2):
    for i, (img0, img1, label) in enumerate(loader, 0):
        optimizer.zero_grad()
        output1, output2 = net(img0, img1)
        loss = criterion(output1, output2, label)
        loss.backward()
        optimizer.step()
        print("Epoch number {} batch {} Current loss {:.6f}".format(epoch, i, loss.item()))
net.eval()
with torch.no_grad():
    a, b = net(images[:1], images[4:5])
    print("distance of one class %.4f" % F.pairwise_distance(a, b).item())
