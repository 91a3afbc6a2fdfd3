import torch
import torch.nn as nn

import draws


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        # N, 1, 16, 16
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 4, 3, stride=2, padding=1),  # N, 4, 8, 8
            nn.ReLU(),
            nn.Conv2d(4, 8, 3, stride=2, padding=1),  # N, 8, 4, 4
            nn.ReLU(),
            nn.Conv2d(8, 16, 4),  # N, 16, 1, 1
        )
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(16, 8, 4),  # N, 8, 4, 4
            nn.ReLU(),
            nn.ConvTranspose2d(8, 4, 3, stride=2, padding=1, output_padding=1),  # N, 4, 8, 8
            nn.ReLU(),
            nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False),  # N, 4, 16, 16
            nn.Conv2d(4, 1, 3, padding=1),
            nn.Sigmoid(),
        )

    def forward(self, x):
        encoded = self.encoder(x)
        decoded = self.decoder(encoded)
        return decoded


def circles(n):
    grid = torch.arange(16, dtype=torch.float32)
    yy, xx = torch.meshgrid(grid, grid, indexing="ij")
    center = draws.rand(n, 2) * 8 + 4
    radius = draws.rand(n, 1, 1) * 3 + 1
    d2 = (yy[None] - center[:, 0, None, None]) ** 2 + (xx[None] - center[:, 1, None, None]) ** 2
    return (d2 < radius**2).float().unsqueeze(1)


model = draws.init_(Autoencoder())
criterion = nn.MSELoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=1e-5)
outputs = []
for epoch in range(3):
    for img in torch.split(circles(16), 8):
        recon = model(img)
        loss = criterion(recon, img)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"Epoch:{epoch + 1}, Loss:{loss.item():.6f}")
    outputs.append((epoch, img, recon))

imgs = outputs[-1][1].detach().numpy()
recon = outputs[-1][2].detach().numpy()
print(imgs.shape, recon.shape, round(float(recon.mean()), 5))
code = model.encoder(circles(2))
print(code.flatten().shape, code.squeeze().ndim)
