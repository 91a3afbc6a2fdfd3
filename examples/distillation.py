import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

import draws


class DeepNN(nn.Module):
    def __init__(self, num_classes=4):
        super(DeepNN, self).__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(kernel_size=2, stride=2),
            nn.Conv2d(8, 8, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(kernel_size=2, stride=2),
        )
        self.classifier = nn.Sequential(
            nn.Linear(32, 32), nn.ReLU(), nn.Dropout(0.0), nn.Linear(32, num_classes)
        )

    def forward(self, x):
        x = self.features(x)
        x = torch.flatten(x, 1)
        return self.classifier(x)


class LightNN(nn.Module):
    def __init__(self, num_classes=4):
        super(LightNN, self).__init__()
        self.net = nn.Sequential(
            nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, num_classes)
        )

    def forward(self, x):
        return self.net(x)


labels = draws.randint(0, 4, (48,))
images = draws.randn(48, 1, 8, 8) + labels.view(-1, 1, 1, 1).float() * torch.eye(8)
train_loader = [(images[i : i + 16], labels[i : i + 16]) for i in range(0, 48, 16)]


def train(model, epochs, learning_rate):
    criterion = nn.CrossEntropyLoss()
    optimizer = optim.Adam(model.parameters(), lr=learning_rate)
    model.train()
    for epoch in range(epochs):
        running_loss = 0.0
        for inputs, y in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(inputs), y)
            loss.backward()
            optimizer.step()
            running_loss += loss.item()
        print(f"Epoch {epoch + 1}/{epochs}, Loss: {running_loss / len(train_loader):.6f}")


def train_knowledge_distillation(teacher, student, epochs, T, soft_weight, ce_weight):
    ce_loss, kl = nn.CrossEntropyLoss(), nn.KLDivLoss(reduction="batchmean", log_target=False)
    optimizer = optim.Adam(student.parameters(), lr=1e-2)
    teacher.eval()
    student.train()
    for epoch in range(epochs):
        running_loss = 0.0
        for inputs, y in train_loader:
            optimizer.zero_grad()
            with torch.no_grad():
                teacher_logits = teacher(inputs)
            student_logits = student(inputs)
            soft_targets = nn.functional.softmax(teacher_logits / T, dim=-1)
            soft_prob = nn.functional.log_softmax(student_logits / T, dim=-1)
            soft_loss = kl(soft_prob, soft_targets) * (T**2)
            by_hand = (
                torch.sum(soft_targets * (soft_targets.log() - soft_prob))
                / soft_prob.size()[0]
                * (T**2)
            )
            assert torch.isclose(soft_loss, by_hand, rtol=1e-4).item()
            loss = soft_weight * soft_loss + ce_weight * ce_loss(student_logits, y)
            loss.backward()
            optimizer.step()
            running_loss += loss.item()
        print(f"Distilling {epoch + 1}/{epochs}, Loss: {running_loss / len(train_loader):.6f}")


nn_deep = draws.init_(DeepNN())
train(nn_deep, epochs=3, learning_rate=0.01)
nn_light = draws.init_(LightNN())
print("DeepNN parameters:", f"{sum(p.numel() for p in nn_deep.parameters()):,}")
print("LightNN parameters:", f"{sum(p.numel() for p in nn_light.parameters()):,}")
train_knowledge_distillation(nn_deep, nn_light, epochs=3, T=2, soft_weight=0.25, ce_weight=0.75)
agree = (nn_light(images).argmax(1) == nn_deep(images).argmax(1)).float().mean()
print(f"agreement {agree.item():.3f}", F.softmax(nn_light(images[:1]), dim=1).sum().item() > 0.999)
