"""Optimizing an image: content and style losses in the middle of a fixed network."""

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

import draws


class ContentLoss(nn.Module):
    def __init__(self, target):
        super(ContentLoss, self).__init__()
        self.target = target.detach()
        self.loss = None

    def forward(self, input):
        self.loss = F.mse_loss(input, self.target)
        return input


def gram_matrix(input):
    a, b, c, d = input.size()
    features = input.view(a * b, c * d)
    G = torch.mm(features, features.t())
    return G.div(a * b * c * d)


class StyleLoss(nn.Module):
    def __init__(self, target_feature):
        super(StyleLoss, self).__init__()
        self.target = gram_matrix(target_feature).detach()

    def forward(self, input):
        self.loss = F.mse_loss(gram_matrix(input), self.target)
        return input


class Normalization(nn.Module):
    def __init__(self, mean, std):
        super(Normalization, self).__init__()
        self.mean = torch.as_tensor(mean).view(-1, 1, 1)
        self.std = torch.as_tensor(std).view(-1, 1, 1)

    def forward(self, img):
        return (img - self.mean) / self.std


cnn = nn.Sequential(
    nn.Conv2d(3, 6, 3, padding=1),
    nn.ReLU(inplace=True),
    nn.MaxPool2d(2, 2),
    nn.Conv2d(6, 8, 3, padding=1),
    nn.ReLU(inplace=True),
)
draws.init_(cnn).eval()
for param in cnn.parameters():
    param.requires_grad_(False)
content_img, style_img = draws.rand(1, 3, 16, 16), draws.rand(1, 3, 16, 16)

model = nn.Sequential(Normalization([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
content_losses, style_losses = [], []
i = 0
for layer in cnn.children():
    if isinstance(layer, nn.Conv2d):
        i += 1
        name = "conv_{}".format(i)
    elif isinstance(layer, nn.ReLU):
        name = "relu_{}".format(i)
        layer = nn.ReLU(inplace=False)
    elif isinstance(layer, nn.MaxPool2d):
        name = "pool_{}".format(i)
    else:
        raise RuntimeError("Unrecognized layer: {}".format(layer.__class__.__name__))
    model.add_module(name, layer)
    if name == "conv_2":
        content_loss = ContentLoss(model(content_img).detach())
        model.add_module("content_loss_{}".format(i), content_loss)
        content_losses.append(content_loss)
    if name.startswith("conv"):
        style_loss = StyleLoss(model(style_img).detach())
        model.add_module("style_loss_{}".format(i), style_loss)
        style_losses.append(style_loss)
print([name for name, _ in model.named_children()])

input_img = content_img.clone()
input_img.requires_grad_(True)
optimizer = optim.Adam([input_img], lr=0.05)
for run in range(5):
    with torch.no_grad():
        input_img.clamp_(0, 1)
    optimizer.zero_grad()
    model(input_img)
    style_score = sum(sl.loss for sl in style_losses) * 1e4
    content_score = sum(cl.loss for cl in content_losses)
    loss = style_score + content_score
    loss.backward()
    optimizer.step()
    print(
        "run {}: Style Loss : {:.5f} Content Loss: {:.5f}".format(
            run, style_score.item(), content_score.item()
        )
    )
print(f"{input_img.data.min().item():.4f} {(input_img - content_img).abs().max().item():.4f}")
