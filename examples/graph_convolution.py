import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.modules.module import Module
from torch.nn.parameter import Parameter

import draws


class GraphConvolution(Module):
    """Simple GCN layer."""

    def __init__(self, in_features, out_features, bias=True):
        super(GraphConvolution, self).__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter(torch.FloatTensor(in_features, out_features))
        if bias:
            self.bias = Parameter(torch.FloatTensor(out_features))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self):
        stdv = 1.0 / math.sqrt(self.weight.size(1))
        self.weight.data.copy_((draws.rand(*self.weight.shape) * 2 - 1) * stdv)
        if self.bias is not None:
            self.bias.data.copy_((draws.rand(*self.bias.shape) * 2 - 1) * stdv)

    def forward(self, input, adj):
        support = torch.mm(input, self.weight)
        output = torch.mm(adj, support)
        return output + self.bias if self.bias is not None else output

    def __repr__(self):
        return (
            self.__class__.__name__
            + " ("
            + str(self.in_features)
            + " -> "
            + str(self.out_features)
            + ")"
        )


class GCN(nn.Module):
    def __init__(self, nfeat, nhid, nclass, dropout):
        super(GCN, self).__init__()
        self.gc1 = GraphConvolution(nfeat, nhid)
        self.gc2 = GraphConvolution(nhid, nclass)
        self.dropout = dropout

    def forward(self, x, adj):
        x = F.relu(self.gc1(x, adj))
        x = F.dropout(x, self.dropout, training=self.training)
        x = self.gc2(x, adj)
        return F.log_softmax(x, dim=1)


def normalize(adj):
    adj = adj + torch.eye(adj.size(0))
    deg = adj.sum(1)
    d_inv_sqrt = deg.pow(-0.5)
    d_inv_sqrt[torch.isinf(d_inv_sqrt)] = 0.0
    return d_inv_sqrt.view(-1, 1) * adj * d_inv_sqrt.view(1, -1)


def accuracy(output, labels):
    preds = output.max(1)[1].type_as(labels)
    correct = preds.eq(labels).double()
    return correct.sum() / len(labels)


n = 30
labels = torch.LongTensor([i % 3 for i in range(n)])
same = (labels.unsqueeze(0) == labels.unsqueeze(1)).float()
adj = ((draws.rand(n, n) < 0.1 + 0.3 * same).float()).triu(1)
adj = normalize(adj + adj.t())
features = F.one_hot(labels, 3).float() + draws.randn(n, 3)
idx_train, idx_test = torch.arange(0, 15), torch.arange(15, n)
print("edges %d" % int((adj > 0).sum()))

model = GCN(3, 8, 3, dropout=0.0)
print(model.gc1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.05, weight_decay=5e-4)
for epoch in range(6):
    model.train()
    optimizer.zero_grad()
    output = model(features, adj)
    loss_train = F.nll_loss(output[idx_train], labels[idx_train])
    acc_train = accuracy(output[idx_train], labels[idx_train])
    loss_train.backward()
    optimizer.step()
    model.eval()
    output = model(features, adj)
    loss_val = F.nll_loss(output[idx_test], labels[idx_test])
    print(
        "Epoch: {:04d}".format(epoch + 1),
        "loss_train: {:.6f}".format(loss_train.item()),
        "acc_train: {:.4f}".format(acc_train.item()),
        "loss_val: {:.6f}".format(loss_val.item()),
    )
