"""A ResNet on files in CIFAR-10's format, with random crops and flips."""

import argparse
import os
import pickle
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.utils.data import DataLoader, Dataset

import draws

MEAN = torch.tensor([0.4914, 0.4822, 0.4465]).view(3, 1, 1)
STD = torch.tensor([0.2023, 0.1994, 0.2010]).view(3, 1, 1)


def write_fake_cifar(root, n=24):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, n)
    data = rng.integers(0, 255, (n, 3072)).astype(np.uint8)
    with open(os.path.join(root, "data_batch_1"), "wb") as f:
        pickle.dump({b"data": data, b"labels": labels.tolist()}, f)


class CIFAR10(Dataset):
    def __init__(self, root, transform=None):
        with open(os.path.join(root, "data_batch_1"), "rb") as f:
            entry = pickle.load(f, encoding="bytes")
        self.data = np.vstack([entry[b"data"]]).reshape(-1, 3, 32, 32)
        self.targets = list(entry[b"labels"])
        self.transform = transform

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        img = torch.from_numpy(self.data[index].astype(np.float32) / 255.0)
        if self.transform is not None:
            img = self.transform(img)
        return img, self.targets[index]


def augment(img):
    img = (img - MEAN) / STD
    padded = F.pad(img, (4, 4, 4, 4))
    top, left = draws.randint(0, 9, (2,)).tolist()
    img = padded[:, top : top + 32, left : left + 32]
    return img.flip(-1) if draws.rand(1).item() < 0.5 else img


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, in_planes, planes, stride=1):
        super(BasicBlock, self).__init__()
        self.conv1 = nn.Conv2d(
            in_planes, planes, kernel_size=3, stride=stride, padding=1, bias=False
        )
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, kernel_size=3, stride=1, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.shortcut = nn.Sequential()
        if stride != 1 or in_planes != self.expansion * planes:
            self.shortcut = nn.Sequential(
                nn.Conv2d(
                    in_planes, self.expansion * planes, kernel_size=1, stride=stride, bias=False
                ),
                nn.BatchNorm2d(self.expansion * planes),
            )

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += self.shortcut(x)
        return F.relu(out)


class ResNet(nn.Module):
    def __init__(self, block, num_blocks, width=8, num_classes=10):
        super(ResNet, self).__init__()
        self.in_planes = width
        self.conv1 = nn.Conv2d(3, width, kernel_size=3, stride=1, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.layer1 = self._make_layer(block, width, num_blocks[0], stride=1)
        self.layer2 = self._make_layer(block, 2 * width, num_blocks[1], stride=2)
        self.layer3 = self._make_layer(block, 4 * width, num_blocks[2], stride=2)
        self.linear = nn.Linear(4 * width * block.expansion, num_classes)

    def _make_layer(self, block, planes, num_blocks, stride):
        strides = [stride] + [1] * (num_blocks - 1)
        layers = []
        for stride in strides:
            layers.append(block(self.in_planes, planes, stride))
            self.in_planes = planes * block.expansion
        return nn.Sequential(*layers)

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.layer3(self.layer2(self.layer1(out)))
        out = F.avg_pool2d(out, out.size(3))
        out = out.view(out.size(0), -1)
        return self.linear(out)


def main():
    parser = argparse.ArgumentParser(description="PyTorch CIFAR10 Training")
    parser.add_argument("--lr", default=0.1, type=float, help="learning rate")
    parser.add_argument("--resume", "-r", action="store_true", help="resume from checkpoint")
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with tempfile.TemporaryDirectory() as root:
        write_fake_cifar(root)
        trainset = CIFAR10(root, transform=augment)
    trainloader = DataLoader(trainset, batch_size=4, shuffle=False, num_workers=0, drop_last=True)
    net = draws.init_(ResNet(BasicBlock, [1, 1, 1])).to(device)
    if device == "cuda":
        net = torch.nn.DataParallel(net)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = optim.SGD(
        net.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4, nesterov=True
    )
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=20)
    net.train()
    train_loss, correct, total = 0, 0, 0
    for batch_idx, (inputs, targets) in enumerate(trainloader):
        inputs, targets = inputs.to(device), targets.to(device)
        optimizer.zero_grad()
        outputs = net(inputs)
        loss = criterion(outputs, targets)
        loss.backward()
        optimizer.step()
        scheduler.step()
        train_loss += loss.item()
        _, predicted = outputs.max(1)
        total += targets.size(0)
        correct += predicted.eq(targets).sum().item()
        print(
            batch_idx,
            len(trainloader),
            "Loss: %.6f | Acc: %.3f%% (%d/%d) | lr %.5f"
            % (
                train_loss / (batch_idx + 1),
                100.0 * correct / total,
                correct,
                total,
                scheduler.get_last_lr()[0],
            ),
        )
        if batch_idx == 4:
            break


if __name__ == "__main__":
    main()
