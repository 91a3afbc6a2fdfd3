import torch
import torch.nn as nn
import torch.nn.functional as F

import draws


def fgsm_attack(image, epsilon, data_grad):
    sign_data_grad = data_grad.sign()
    perturbed_image = image + epsilon * sign_data_grad
    return torch.clamp(perturbed_image, 0, 1)


def pgd(model, images, labels, eps=0.2, alpha=0.05, iters=4):
    ori_images = images.data
    for i in range(iters):
        images.requires_grad = True
        outputs = model(images)
        model.zero_grad()
        cost = nn.CrossEntropyLoss()(outputs, labels)
        cost.backward()
        adv_images = images + alpha * images.grad.sign()
        eta = torch.clamp(adv_images - ori_images, min=-eps, max=eps)
        images = torch.clamp(ori_images + eta, min=0, max=1).detach_()
    return images


labels = draws.randint(0, 3, (60,))
images = torch.stack([torch.full((16,), 0.2 + 0.3 * l.item()) for l in labels]) + 0.1 * draws.randn(
    60, 16
)
images = images.clamp(0, 1)
model = draws.init_(nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 3)))
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
for epoch in range(20):
    optimizer.zero_grad()
    loss = F.nll_loss(F.log_softmax(model(images), dim=1), labels)
    loss.backward()
    optimizer.step()
    if epoch % 5 == 0:
        print(f"epoch {epoch} loss {loss.item():.6f}")

model.eval()
for epsilon in (0, 0.05, 0.1, 0.15):
    correct, confidence = 0, 0.0
    for data, target in zip(images[:20].split(5), labels[:20].split(5)):
        data = data.clone()
        data.requires_grad = True
        output = model(data)
        loss = F.cross_entropy(output, target)
        model.zero_grad()
        loss.backward()
        data_grad = data.grad.data
        perturbed = fgsm_attack(data, epsilon, data_grad)
        output = model(perturbed)
        final_pred = output.max(1, keepdim=True)[1]
        correct += final_pred.eq(target.view_as(final_pred)).sum().item()
        confidence += F.softmax(output, dim=1).max(1)[0].sum().item()
    print(
        "Epsilon: {}\tTest Accuracy = {} / {} = {:.3f} confidence {:.5f}".format(
            epsilon, correct, 20, correct / 20, confidence / 20
        )
    )
adv = pgd(model, images[:20].clone(), labels[:20])
print(
    f"pgd {(model(adv).argmax(1) == labels[:20]).sum().item()} {F.cross_entropy(model(adv), labels[:20]).item():.5f}"
)
