import argparse
import os
import tempfile

import torch
import torch.nn as nn
import torch.optim as optim
from torch.utils.data import DataLoader, TensorDataset

import draws


class MLP(nn.Module):
    def __init__(self, input_dim, hidden_dims, num_classes, dropout=0.0):
        super(MLP, self).__init__()
        layers = []
        last = input_dim
        for h in hidden_dims:
            layers += [nn.Linear(last, h), nn.ReLU(inplace=True), nn.Dropout(dropout)]
            last = h
        layers.append(nn.Linear(last, num_classes))
        self.net = nn.Sequential(*layers)

    def forward(self, x):
        return self.net(x.view(x.size(0), -1))


def make_data(n):
    x = draws.randn(n, 8)
    y = (x[:, 0] * x[:, 1] > 0).long() + (x[:, 2] > 0).long()
    return x, y


def train(model, device, train_loader, optimizer, epoch, log_interval):
    model.train()
    for batch_idx, (data, target) in enumerate(train_loader):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        output = model(data)
        loss = nn.CrossEntropyLoss()(output, target)
        loss.backward()
        optimizer.step()
        if batch_idx % log_interval == 0:
            print(
                "Train Epoch: {} [{}/{} ({:.0f}%)]\tLoss: {:.6f}".format(
                    epoch,
                    batch_idx * len(data),
                    len(train_loader.dataset),
                    100.0 * batch_idx / len(train_loader),
                    loss.item(),
                )
            )


def test(model, device, test_loader):
    model.eval()
    test_loss, correct = 0, 0
    with torch.no_grad():
        for data, target in test_loader:
            data, target = data.to(device), target.to(device)
            output = model(data)
            test_loss += nn.functional.cross_entropy(output, target, reduction="sum").item()
            pred = output.argmax(dim=1, keepdim=True)
            correct += pred.eq(target.view_as(pred)).sum().item()
    test_loss /= len(test_loader.dataset)
    print(
        "\nTest set: Average loss: {:.4f}, Accuracy: {}/{} ({:.0f}%)\n".format(
            test_loss, correct, len(test_loader.dataset), 100.0 * correct / len(test_loader.dataset)
        )
    )


def main():
    parser = argparse.ArgumentParser(description="PyTorch MLP example")
    parser.add_argument(
        "--batch-size", type=int, default=32, metavar="N", help="input batch size (default: 32)"
    )
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.01, metavar="LR")
    parser.add_argument(
        "--no-cuda", action="store_true", default=False, help="disables CUDA training"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log-interval", type=int, default=2)
    parser.add_argument("--checkpoint", default=None, help="where to save and resume")
    args = parser.parse_args()
    use_cuda = not args.no_cuda and torch.cuda.is_available()
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if use_cuda else "cpu")
    print("device:", device)
    kwargs = {"num_workers": 1, "pin_memory": True} if use_cuda else {}

    draws.seed(args.seed)
    train_loader = DataLoader(
        TensorDataset(*make_data(128)), batch_size=args.batch_size, shuffle=False, **kwargs
    )
    test_loader = DataLoader(TensorDataset(*make_data(64)), batch_size=64, **kwargs)
    model = draws.init_(MLP(8, [16, 16], 3)).to(device)
    print(sum(p.numel() for p in model.parameters() if p.requires_grad), "parameters")
    optimizer = optim.Adam(model.parameters(), lr=args.lr, weight_decay=1e-4)

    path = args.checkpoint or os.path.join(tempfile.mkdtemp(), "checkpoint.pt")
    start_epoch = 1
    if os.path.isfile(path):
        checkpoint = torch.load(path, map_location=device)
        start_epoch = checkpoint["epoch"] + 1
        model.load_state_dict(checkpoint["model_state_dict"])
        optimizer.load_state_dict(checkpoint["optimizer_state_dict"])
    for epoch in range(start_epoch, args.epochs + 1):
        train(model, device, train_loader, optimizer, epoch, args.log_interval)
        test(model, device, test_loader)
        torch.save(
            {
                "epoch": epoch,
                "model_state_dict": model.state_dict(),
                "optimizer_state_dict": optimizer.state_dict(),
                "args": vars(args),
            },
            path,
        )

    # resume into a fresh model and continue
    resumed = MLP(8, [16, 16], 3)
    optimizer2 = optim.Adam(resumed.parameters(), lr=args.lr, weight_decay=1e-4)
    checkpoint = torch.load(path)
    resumed.load_state_dict(checkpoint["model_state_dict"])
    optimizer2.load_state_dict(checkpoint["optimizer_state_dict"])
    print("resuming after epoch", checkpoint["epoch"], "lr", checkpoint["args"]["lr"])
    train(resumed, device, train_loader, optimizer2, checkpoint["epoch"] + 1, args.log_interval)


if __name__ == "__main__":
    main()
