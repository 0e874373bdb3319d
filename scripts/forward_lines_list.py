"""Lines of `forward` as people write them, for `forward_lines`. `;;` parts statements.

`x` (batch × 4 × 6), `i` (batch × 4, whole numbers from 0 to 3) and `p` (batch × 3 × 8 × 8) are arguments, `h` is
`self.fc(x)` and `q` is `self.conv(p)`; `self.w` is a parameter of 6 × 6 and `self.b` a buffer of 6. `y` is returned.
"""

# ruff: noqa: E501

from __future__ import annotations

_TEXT = """
# sizes and new tensors
y = torch.zeros(x.shape[0], 10) + h.sum()
y = torch.zeros((x.shape[0], 10)) + h.sum()
y = torch.zeros([x.size(0), 10]) + h.sum()
y = torch.zeros(x.size(0), 4, 6, device=x.device) + h
y = torch.zeros(x.size(0), 4, 6, device=x.device, dtype=x.dtype) + h
y = torch.zeros(x.shape[0], self.dim, dtype=torch.float64) + h.mean(1)
y = torch.zeros(x.size(0), 4, 6, requires_grad=True) + h
y = torch.zeros(x.shape, device=x.device) + h
y = torch.zeros(size=(x.size(0), 6)) + h[:, 0]
y = torch.zeros(*x.shape[:2], 3) + h[..., :3]
y = torch.ones(x.shape[0], 4, 1) * h
y = torch.ones(len(x), 6) + h[:, 0]
y = torch.full((x.size(0), 6), 0.5) * h[:, 1]
y = torch.full((x.size(0), 1), float('-inf'));;y = torch.maximum(h[:, :, 0], y)
y = torch.empty(x.shape[0], 6).fill_(2.0) * h[:, 0]
y = torch.empty(x.size(0), 4, 6, dtype=x.dtype, device=x.device).zero_() + h
y = torch.empty_like(h).copy_(h)
y = torch.empty_like(x).fill_(1.5) + h
y = x.new_zeros(x.size(0), 6) + h[:, 0]
y = x.new_zeros((x.size(0), 6)) + h[:, 0]
y = x.new_ones(x.size(0), 4, 1) * h
y = x.new_full((x.size(0), 6), 3.0) * h[:, 0]
y = x.new_empty(x.size(0), 6).fill_(1.0) + h[:, 0]
y = x.new_tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) * h
y = torch.zeros_like(h) + h
y = torch.zeros_like(h[:, 0]).unsqueeze(1) + h
y = torch.ones_like(h, dtype=torch.bool) & (h > 0)
y = torch.full_like(h, 0.1) + h
y = torch.arange(x.size(1)) + h[..., 0]
y = torch.arange(x.size(1), device=x.device, dtype=x.dtype).view(1, -1, 1) * h
y = torch.arange(0, 6, 2).float() + h[..., :3]
y = torch.arange(x.size(0), device=x.device).unsqueeze(1) + h[..., 0]
y = torch.linspace(-1, 1, x.size(2), device=x.device) * h
y = torch.eye(x.size(1)) @ h
y = torch.eye(6, device=x.device).unsqueeze(0).expand(x.size(0), -1, -1) @ h.transpose(1, 2)
y = torch.eye(x.size(0))[:, :1] + h[:, 0]
y = torch.tensor(2.0) * h
y = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) + h
y = torch.tensor([0, 2]);;y = h[:, y]
y = torch.tensor(x.size(1)) + h
y = torch.tensor(float(x.shape[-1])).sqrt() * h
y = torch.tensor([x.size(1), x.size(2)]).prod() * h
y = torch.tensor([[1.0, 0.0], [0.0, 1.0]], device=x.device) @ h[:, :2]
y = torch.as_tensor(self.eps) + h
y = torch.tril(torch.ones(x.size(1), x.size(1))) @ h
y = torch.triu(torch.ones(x.size(1), x.size(1), dtype=torch.bool), diagonal=1);;y = h @ h.transpose(1, 2);;y = y.masked_fill(torch.triu(torch.ones(x.size(1), x.size(1), dtype=torch.bool), 1), -1e9)
b, n, d = x.shape;;y = h.reshape(b * n, d)
b, n, d = h.size();;y = h.view(b, n, 2, d // 2)
y = h / math.sqrt(h.size(-1))
y = h * x.shape[-1] ** -0.5
y = h.view(h.size(0), -1)
y = h.view(-1, h.size(-1) // 2, 2)
y = h.reshape(len(h), -1)
y = h * (x.numel() // x.size(0))
y = h * h.dim() + h.ndim
y = h.view(h.shape[0], *h.shape[1:])
y = h.flatten(1)[:, : x.size(1) * 2]
y = h * max(x.size(1), 3) * min(x.size(2), 9)
y = h * int(math.ceil(x.size(1) / 3))
y = h * round(x.size(2) / 4)
y = h * np.prod(x.shape[1:])
y = h * np.sqrt(6) + np.float32(0.5)
y = h[:, : np.int64(2)]
# indexing
y = h[:, 0]
y = h[0]
y = h[-1]
y = h[:, -1, :]
y = h[..., 0]
y = h[..., 1:4]
y = h[..., ::2]
y = h[:, 1::2, :3]
y = h[:, None, :, :]
y = h[:, :, None]
y = h[..., None]
y = h[None]
y = h[:, [0, 2]]
y = h[:, [0, 2], :]
y = h[..., [-2], :]
y = h[..., [0, -1]]
y = h[:, [0, 2], [1, 3]]
y = h[:, torch.arange(3)]
y = h[torch.arange(x.size(0)), 0]
y = h[torch.arange(x.size(0)), i[:, 0]]
y = h[torch.arange(x.size(0))[:, None], i]
y = h[:, i[0]]
y = h[i[:, 0] % 2]
y = h[:, :, i[0]]
y = self.w[i]
y = self.w[i, i]
y = self.w[:, i[0]] + h.mean()
y = self.w[0] + h
y = self.b[i]
y = h[h > 0]
y = h[h[:, 0, 0] > 0]
y = h[(slice(None), 0)]
y = h[:, slice(1, 3)]
y = h[True]
y = h[:, 0:1].expand(-1, 4, -1)
y = h[..., :-1] - h[..., 1:]
y = h[:, :x.size(1) // 2]
y = h[:, -x.size(1) // 2:]
y = h.select(1, 0)
y = h.narrow(1, 1, 2)
y = h.index_select(1, torch.tensor([0, 2]))
y = torch.index_select(h, 1, i[0])
y = h.take_along_dim(i.unsqueeze(-1), dim=1)
y = torch.take(h, i)
y = h.gather(1, i.unsqueeze(-1).expand(-1, -1, 6))
y = torch.gather(h, 2, i.unsqueeze(-1))
y = h.scatter(2, i.unsqueeze(-1), 1.0)
y = torch.zeros_like(h).scatter_(2, i.unsqueeze(-1), 1.0) + h
y = torch.zeros_like(h).scatter_(1, i.unsqueeze(-1).expand_as(h), h)
y = torch.zeros_like(h).scatter_add_(1, i.unsqueeze(-1).expand_as(h), h)
y = torch.scatter_add(h, 1, i.unsqueeze(-1).expand(-1, -1, 6), h)
y = torch.zeros(4, 6, dtype=h.dtype).index_add_(0, i[0], h[0])
y = torch.zeros_like(h).index_add(1, i[0], h)
y = h.index_fill(1, i[0], 0.5)
y = torch.zeros_like(h).scatter_reduce(1, i.unsqueeze(-1).expand_as(h), h, reduce='sum')
y = h.masked_select(h > 0)
y = torch.nonzero(h[:, 0, 0] > 0)
y = h.diagonal(dim1=1, dim2=2)
y = torch.diagonal(h, 0, 1, 2)
y = torch.diag_embed(h)
y = torch.diag(h[0, 0])
# writing to places
y = h.clone();;y[:, 0] = 0
y = h.clone();;y[:, 0] = x[:, 1]
y = h.clone();;y[:, 1:3] = x[:, :2]
y = h.clone();;y[..., 0] = h[..., 1]
y = h.clone();;y[:, :, 2] += 1
y = h.clone();;y[:, 1] *= 2
y = h.clone();;y[h > 0] = 0
y = h.clone();;y[:, [0, 2]] = 1.0
y = h.clone();;y[torch.arange(x.size(0)), i[:, 0]] = 1.0
y = torch.zeros(x.size(0), 6, 6);;y[:, :4] = h
y = x.new_zeros(x.size(0), 8, 6);;y[:, 2:6] = h
y = h.clone();;y.add_(1)
y = h.clone();;y.mul_(2).sub_(1)
y = h.clone();;y += x
y = h.clone();;y -= 0.5 * x;;y *= 2
y = h.clone();;y.clamp_(min=0)
y = h.clone();;y.masked_fill_(h < 0, 0.0)
y = h.clone();;y.zero_()
y = h.clone();;y.copy_(x)
y = h.clone();;y.fill_(0.5)
y = h.clone();;y.div_(2).pow_(2)
y = h.clone();;y.relu_()
y = F.relu(h, inplace=True)
y = h.clone();;y[:, 0].add_(1)
y = h.clone();;y.t_() if False else None
y = h.clone();;y.unsqueeze_(1)
y = h.clone();;y.transpose_(1, 2)
# masks and choices
y = torch.where(h > 0, h, torch.zeros_like(h))
y = torch.where(h > 0, h, 0.0)
y = torch.where(h > 0, 1.0, h)
y = torch.where(h > 0, 1.0, 0.0)
y = torch.where(h > 0, h, x.new_tensor(-1e9))
y = h.where(h > 0, x)
y = h.masked_fill(h < 0, float('-inf')).softmax(-1)
y = h.masked_fill(~(h > 0), -1e4)
y = h.masked_fill((i == 0).unsqueeze(-1), 0.0)
y = h * (h > 0)
y = h * (h > 0).float()
y = (h > 0) & (x > 0)
y = (h > 0) | (x > 0)
y = (h > 0) ^ (x > 0)
y = ~(h > 0)
y = (h > 0).all(dim=-1), (h > 0).any(-1)
y = (h > 0).any()
y = (h == x)
y = h != 0
y = torch.isnan(h)
y = torch.isinf(h) | torch.isfinite(h)
y = torch.nan_to_num(h)
y = h.ge(0).type_as(h) * h
y = h.gt(0.1).float() + h.lt(0).float()
y = torch.logical_xor(h > 0, x > 0)
y = torch.heaviside(h.detach(), torch.zeros_like(x))
y = h.clamp(0, 1) + h.clamp(min=0.1) + torch.clamp(h, max=0.5)
y = h.clamp(min=x, max=x + 1)
y = h.clamp_min(1e-3) + h.clamp_max(2)
y = torch.isclose(h, x)
y = torch.isin(i, torch.tensor([1, 2]))
# shapes
y = h.view(-1, 4 * 6)
y = h.reshape(x.size(0), 6, 4)
y = h.transpose(1, 2).contiguous().view(x.size(0), -1)
y = h.permute(0, 2, 1)
y = h.permute((2, 0, 1))
y = h.flatten()
y = h.flatten(1, 2)
y = torch.flatten(h, start_dim=1)
y = h.unflatten(-1, (2, 3))
y = h.squeeze()
y = h[:, :1].squeeze(1)
y = h.unsqueeze(1).squeeze((1,))
y = h.unsqueeze(-1).expand(-1, -1, -1, 3)
y = h.expand(2, *h.shape)
y = h.repeat(1, 2, 1)
y = h.repeat(1, 1, x.size(1))
y = h.repeat_interleave(2, dim=1)
y = h.repeat_interleave(2)
y = h.tile((1, 2))
y = h.t() if h.dim() == 2 else h.transpose(-2, -1)
y = h.mT
y = h[0].T
y = h.movedim(1, -1)
y = torch.movedim(h, (0, 1), (1, 0))
y = torch.swapaxes(h, 1, 2)
y = h.roll(1, dims=1)
y = torch.roll(h, shifts=(1, 2), dims=(1, 2))
y = h.roll(1)
y = h.flip(1)
y = torch.flip(h, dims=[1, 2])
y = torch.rot90(q, 1, [2, 3])
y = torch.cat([h, x], dim=-1)
y = torch.cat((h, x), 1)
y = torch.cat([h] * 3, dim=1)
y = torch.stack([h, x])
y = torch.stack((h, x), dim=1)
y = torch.stack([h[:, j] * j for j in range(h.size(1))], dim=1)
y = torch.hstack((h, x))
y = torch.vstack((h, x)) + torch.dstack((h, x)).sum()
a, b = h.chunk(2, dim=-1);;y = a * torch.sigmoid(b)
y = torch.chunk(h, 3, -1)[1]
a, b = torch.split(h, 3, dim=-1);;y = a + b
a, b, c = h.split([1, 2, 3], dim=-1);;y = a * b[..., :1] + c
a, b = torch.split(h, [2, 4], -1);;y = (a, b)
a, b, c, d = h.unbind(1);;y = a + d
y = h.unbind(-1)[0]
y = torch.tensor_split(h, 3, dim=-1)[0]
y = sum(h.unbind(1))
y = [t.relu() for t in h.split(2, dim=1)]
y = h.unfold(1, 2, 1)
y = h.unfold(dimension=2, size=3, step=2)
y = h.unfold(-1, 3, 1).mean(-1)
y = F.unfold(q, 3, padding=1)
y = F.fold(F.unfold(q, 2, stride=2), (8, 8), 2, stride=2)
y = F.pad(h, (1, 1))
y = F.pad(h, (1, 0, 2, 0), value=-1.0)
y = F.pad(q, (1, 1, 1, 1), mode='reflect')
y = F.pad(h, (0, 0, 1, 0), 'constant', 0)
y = F.pad(h, [0, 8 - x.size(2)])
y = torch.atleast_2d(h) + torch.broadcast_to(h[:, :1], h.shape)
y = torch.broadcast_tensors(h, h[:, :1])[1]
y = h.view_as(x) + h.reshape_as(x) + h[:, :1].expand_as(x)
y = torch.meshgrid(torch.arange(2), torch.arange(3), indexing='ij')[0] + h.mean()
y = torch.cartesian_prod(torch.arange(2), torch.arange(3)) + h.mean()
y = torch.block_diag(h[0], h[0])
y = torch.kron(h[0, :2, :2], self.w[:2, :2])
# reductions
y = h.mean()
y = h.mean(dim=1)
y = h.mean([1, 2])
y = h.mean((-2, -1), keepdim=True) * h
y = h.sum(-1, keepdim=True)
y = torch.sum(h, dim=(1, 2))
y = h.sum(axis=1)
y = h.prod(-1)
y = h.max()
y = h.max(dim=-1).values
y = h.max(-1)[0]
y, k = h.max(dim=1)
y = h.max(dim=1, keepdim=True)[0] - h.min(1, True)[0]
y = torch.max(h, x)
y = h.amax(dim=(1, 2)) - h.amin((1, 2))
y = h.argmax(-1)
y = h.argmax()
y = h.aminmax(dim=1)
y = h.std(-1) + h.var(dim=1).sum(-1, keepdim=True)
y = h.var(-1, unbiased=False)
y, m = torch.var_mean(h, dim=-1)
y = torch.std_mean(h, -1, keepdim=True)[0]
y = h.norm()
y = h.norm(dim=-1)
y = h.norm(p=2, dim=-1, keepdim=True)
y = h.norm(1, -1)
y = torch.norm(h, p='fro', dim=(1, 2))
y = torch.linalg.norm(h, dim=-1)
y = torch.linalg.vector_norm(h, 2, -1, keepdim=True)
y = torch.linalg.matrix_norm(h)
y = F.normalize(h, dim=-1)
y = F.normalize(h, p=1, dim=1, eps=1e-8)
y = h / h.norm(dim=-1, keepdim=True).clamp(min=1e-6)
y = h.logsumexp(-1)
y = torch.logsumexp(h, dim=(1, 2), keepdim=True)
y = h.median(-1).values
y = h.median()
y = torch.quantile(h, 0.5, dim=-1)
y = h.mode(-1).values
y = h.cumsum(1)
y = torch.cumsum(h, dim=-1)
y = h.cumprod(-1)
y = h.cummax(1).values
y = torch.logcumsumexp(h, 1)
y = h.sort(-1).values
y, k = torch.sort(h, dim=1, descending=True)
y = h.argsort(-1)
y = h.topk(2, dim=-1).values
y, k = torch.topk(h, k=2)
y = h.topk(2, -1)[1]
y = h.kthvalue(2, -1).values
y = torch.unique(i)
y = torch.bincount(i.flatten())
y = torch.histc(h, 4)
y = (h > 0).sum(-1)
y = (h > 0).float().mean()
y = h.count_nonzero(-1)
y = torch.trace(self.w) + h
y = h.nansum(-1) + h.nanmean(-1)
# arithmetic and functions of numbers
y = 2 * h + 1
y = 1 - h
y = -h
y = +h
y = h ** 2
y = 2 ** h
y = h.pow(3) + torch.pow(h, 2)
y = abs(h)
y = h.detach() // 2
y = h % 2
y = x / (h + 10)
y = 1 / (1 + torch.exp(-h))
y = h.detach().div(2, rounding_mode='floor')
y = h.add(x, alpha=0.5)
y = torch.add(h, x) - torch.sub(h, x, alpha=2)
y = torch.rsub(h, 1)
y = torch.addcmul(h, x, x, value=0.5)
y = torch.addcdiv(h, x, x.abs() + 1, value=0.5)
y = torch.lerp(h, x, 0.3)
y = h.lerp(x, torch.sigmoid(h))
y = torch.fmod(h, 2) + torch.remainder(h, 2)
y = h.exp() + h.expm1() + h.exp2()
y = (h.abs() + 1).log() + torch.log2(h.abs() + 1) + torch.log10(h.abs() + 1) + torch.log1p(h.abs())
y = h.abs().sqrt() + (h.abs() + 1).rsqrt() + (h.abs() + 1).reciprocal()
y = h.sin() + torch.cos(h) + torch.tan(h)
y = torch.sinh(h) + torch.cosh(h)
y = torch.asin(h.tanh()) + torch.acos(h.tanh()) + torch.atan(h)
y = torch.atan2(h, x)
y = torch.arctan2(h, x) + torch.asinh(h)
y = torch.hypot(h, x)
y = h.sign() + torch.sgn(h)
y = h.floor() + h.ceil() + h.round() + h.trunc() + h.frac()
y = torch.round(h, decimals=2)
y = torch.erf(h) + torch.erfc(h) + torch.erfinv(h.tanh())
y = torch.special.gammaln(h.abs() + 1) + torch.lgamma(h.abs() + 1) + torch.digamma(h.abs() + 1)
y = torch.logit(torch.sigmoid(h)) + torch.special.expit(h)
y = torch.xlogy(h, h.abs() + 1) + torch.sinc(h)
y = torch.logaddexp(h, x)
y = torch.copysign(h, x)
y = torch.fmax(h, x) + torch.fmin(h, x)
y = torch.maximum(h, x) - torch.minimum(h, x)
y = torch.square(h) + torch.float_power(h, 2).to(h.dtype)
y = torch.diff(h, dim=1)
y = torch.deg2rad(h)
y = torch.bucketize(h.detach(), torch.arange(3.0, dtype=h.dtype))
y = torch.searchsorted(self.b, h.detach())
y = i & 1
y = (i << 1) | 1
y = torch.bitwise_xor(i, i + 1)
y = h.relu().tanh().sigmoid()
y = math.pi * h + math.log(2)
y = h * float(1.5) * int(2)
y = (h if x.size(1) > 2 else x) * 2
y = h if self.training else h * 2
y = h * (2 if self.dim == 6 else 1)
y = h;;assert x.size(1) == 4, f'{x.shape}'
y = h;;assert x.dim() == 3
y = h;;print(f'{tuple(x.shape)}') if False else None
y = h;;name = f'layer_{h.size(1)}'
y = h;;torch._assert(x.size(1) == 4, 'four')
# matrices
y = h @ self.w
y = h.matmul(self.w)
y = torch.matmul(h, h.transpose(-2, -1))
y = torch.bmm(h, h.transpose(1, 2))
y = torch.mm(h[:, 0], self.w)
y = torch.mv(self.w, h[0, 0])
y = torch.dot(h[0, 0], h[0, 1])
y = torch.einsum('bnd,de->bne', h, self.w)
y = torch.einsum('b n d, b m d -> b n m', h, h)
y = torch.einsum('...d,de->...e', h, self.w)
y = torch.baddbmm(torch.zeros(1, 4, 4, dtype=h.dtype), batch1=h, batch2=h.transpose(1, 2), beta=0, alpha=0.5)
y = torch.addmm(self.b, h[:, 0], self.w)
y = torch.outer(h[0, 0], h[0, 1])
y = torch.tensordot(h, self.w, dims=1)
y = torch.cdist(h, x)
y = torch.cross(h[..., :3], x[..., :3], dim=-1)
y = torch.linalg.inv(self.w + 3 * torch.eye(6)) @ h.transpose(1, 2)
y = torch.inverse(self.w + 3 * torch.eye(6)) + h.mean()
y = torch.linalg.solve(self.w + 3 * torch.eye(6), h.transpose(1, 2))
y = torch.linalg.det(self.w + 3 * torch.eye(6)) * h
y = torch.logdet(self.w @ self.w.T + torch.eye(6)) * h
y = torch.linalg.svdvals(h)
y = torch.linalg.qr(h)[1].abs()
y = torch.linalg.cholesky(self.w @ self.w.T + torch.eye(6)) + h.mean()
y = torch.linalg.eigvalsh(self.w + self.w.T) + h
y = torch.linalg.multi_dot([h[0], self.w, self.w])
y = torch.matrix_exp(self.w) + h.mean()
y = torch.chain_matmul(h[0], self.w) if False else h[0] @ self.w
y = F.linear(h, self.w)
y = F.bilinear(h, x, self.w.unsqueeze(0))
# functions of torch.nn.functional
y = F.relu(h) + F.gelu(h) + F.silu(h) + F.elu(h) + F.leaky_relu(h, 0.1)
y = F.gelu(h, approximate='tanh')
y = F.softmax(h, dim=-1)
y = torch.softmax(h, -1)
y = h.softmax(dim=-1, dtype=torch.float64)
y = F.log_softmax(h, 1)
y = F.softplus(h) + F.softsign(h) + F.tanhshrink(h) + F.hardshrink(h)
y = F.hardtanh(h, -2, 2) + F.relu6(h) + F.hardsigmoid(h)
y = F.celu(h) + F.selu(h) + F.mish(h) + F.logsigmoid(h)
y = F.glu(h, dim=-1)
y = F.prelu(h, self.b[:1])
y = F.threshold(h, 0.1, 0.0)
y = F.softmin(h, dim=-1)
y = F.dropout(h, 0.3, self.training)
y = F.dropout(h, p=0.3, training=True)
y = F.dropout(h, 0.3)
y = F.dropout2d(q, 0.3, self.training)
y = F.alpha_dropout(h, 0.3, self.training)
y = F.gumbel_softmax(h, tau=1.0, dim=-1)
y = F.layer_norm(h, (6,))
y = F.layer_norm(h, h.shape[1:])
y = F.layer_norm(h, [6], self.b, self.b, 1e-6)
y = F.rms_norm(h, (6,))
y = F.group_norm(q, 3)
y = F.instance_norm(q)
y = F.batch_norm(q, None, None, training=True)
y = F.local_response_norm(q, 3)
y = F.one_hot(i, 4)
y = F.one_hot(i, num_classes=4).float() @ self.w[:4]
y = F.embedding(i, self.w)
y = F.embedding_bag(i, self.w)
y = F.cosine_similarity(h, x, dim=-1)
y = F.pairwise_distance(h, x)
y = F.max_pool2d(q, 2)
y = F.max_pool2d(q, 2, 2)
y = F.max_pool1d(h, 2)
y = F.avg_pool2d(q, 2)
y = F.avg_pool1d(h, 2)
y = F.adaptive_avg_pool2d(q, 1)
y = F.adaptive_avg_pool2d(q, (3, None))
y = F.adaptive_max_pool2d(q, 2)
y = F.adaptive_avg_pool1d(h, 3)
y = F.lp_pool2d(q, 2.0, 2)
y = F.interpolate(q, scale_factor=2)
y = F.interpolate(q, size=(12, 12), mode='bilinear', align_corners=False)
y = F.interpolate(q, size=q.shape[-1] * 2, mode='nearest')
y = F.interpolate(q[:, :, :4], q.shape[2:], mode='bilinear')
y = F.upsample(q, scale_factor=2)
y = F.pixel_shuffle(torch.cat([q, q[:, :1]], 1), 2)
y = F.pixel_unshuffle(q, 2)
y = F.grid_sample(q, torch.tanh(q[:, :2].permute(0, 2, 3, 1)), align_corners=False)
y = F.affine_grid(torch.eye(2, 3).expand(x.size(0), 2, 3), (x.size(0), 1, 4, 4), align_corners=False) + h.mean()
y = F.conv2d(q, self.w.view(1, 1, 6, 6).expand(3, 3, 6, 6))
y = F.conv1d(h, self.w[:4, :4].unsqueeze(-1))
y = F.conv_transpose2d(q, self.w[:3, :3].unsqueeze(-1).unsqueeze(-1))
y = F.scaled_dot_product_attention(h, h, h)
y = F.scaled_dot_product_attention(h.unsqueeze(1), h.unsqueeze(1), h.unsqueeze(1), is_causal=True)
y = F.scaled_dot_product_attention(h, h, h, attn_mask=torch.ones(4, 4, dtype=torch.bool).tril())
y = F.scaled_dot_product_attention(h, h, h, dropout_p=0.2 if self.training else 0.0)
y = F.mse_loss(h, x)
y = F.l1_loss(h, x, reduction='none')
y = F.smooth_l1_loss(h, x)
y = F.cross_entropy(h.flatten(0, 1), i.flatten())
y = F.nll_loss(F.log_softmax(h, -1).flatten(0, 1), i.flatten())
y = F.binary_cross_entropy_with_logits(h, (x > 0).to(h.dtype))
y = F.kl_div(F.log_softmax(h, -1), F.softmax(x, -1), reduction='batchmean')
y = F.logsigmoid(h).sum(-1)
# dtypes and devices
y = h.float()
y = h.double()
y = h.to(torch.float64)
y = h.to(x.dtype)
y = h.to(x.device)
y = h.to(x)
y = h.to('cpu')
y = h.to(x.device, dtype=torch.float64)
y = h.type(torch.float64)
y = h.type_as(x)
y = h.long()
y = h.int()
y = h.bool()
y = h.cpu()
y = h.half().to(x.dtype)
y = h.bfloat16().to(x.dtype)
y = i.float() + h.sum(-1)
y = (h > 0).int() + (h > 0).long()
y = h.detach()
y = h.detach() + (h - h.detach())
y = h.clone()
y = h.contiguous()
y = h.data + 1
y = h.requires_grad_()
y = h.contiguous(memory_format=torch.contiguous_format)
y = torch.finfo(h.dtype).max * 0 + h
y = h.masked_fill(h < 0, torch.finfo(h.dtype).min)
y = h * torch.is_floating_point(h)
y = h if h.is_cuda else h * 3
y = h if h.dtype == torch.float16 else h * 3
y = h if h.device.type == 'cuda' else h * 3
y = h.is_contiguous() * h
y = h if isinstance(h, torch.Tensor) else x
y = h if torch.is_tensor(h) else x
y = h.type_as(i).type_as(h)
# spectra and complex numbers
y = torch.fft.rfft(h, dim=-1).abs()
y = torch.fft.fft2(h).real
y = torch.fft.ifft(torch.fft.fft(h)).real
y = torch.fft.irfft(torch.fft.rfft(h), n=6)
y = torch.view_as_complex(h.reshape(x.size(0), 4, 3, 2).contiguous()).abs()
y = torch.view_as_real(torch.complex(h, x))
y = torch.polar(h.abs(), x).imag
y = torch.stft(h.flatten(1), 8, hop_length=4, window=torch.hann_window(8), return_complex=True).abs()
y = torch.hann_window(6) * h
y = torch.fft.fftfreq(6) * h
# containers and loops
y = {'logits': h, 'features': x}
y = (h, x)
y = [h, x]
y = (h, None)
y = {'a': (h, x), 'b': h.sum()}
y = h;;y = [y := y + k for k in range(3)][-1]
out = [];;[out.append(h[:, t]) for t in range(x.size(1))];;y = torch.stack(out, 1)
y = sum([h, x, h * x])
y = sum(h[:, t] * t for t in range(4))
y = h;;y = [y * s for s in (1, 2)][1]
y = dict(a=h)['a']
y = [h, x][0] + (h, x)[-1]
y = torch.stack([t.sum() for t in (h, x)])
y = h.apply_(lambda v: v) if False else h
y = max(h.size(0), 1) * h
y = getattr(torch, 'relu')(h)
y = getattr(h, 'relu')()
y = (lambda t: t * 2)(h)
y = torch.zeros(x.size(0), 6);;y = [y := torch.tanh(h[:, t] + y) for t in range(x.size(1))][-1]
y = list(h.split(3, dim=-1))[1] + h[..., :3]
y = [*h.chunk(2, -1)][0]
first, *rest = h.chunk(3, -1);;y = first + rest[-1]
y = h.size(0) * h
y = h.shape[1] * h
y = (h.size() == x.size()) * h
y = h if h.shape == x.shape else x
y = h.shape[0] // 1 * h
y = torch.Size([x.size(0), 24]);;y = h.reshape(y)
y = torch.utils.checkpoint.checkpoint(self.fc, h, use_reentrant=False)
y = h.item() if False else h
y = h.squeeze(0) if x.size(0) == 1 else h
y = self.fc.weight @ h.transpose(1, 2)
y = self.fc.weight.t() + h.mean()
y = F.linear(h, self.fc.weight, self.fc.bias)
y = torch.addmm(self.fc.bias, h[:, 0], self.fc.weight.t())
y = h + self.b.unsqueeze(0)
y = h * self.w.sum(0) + self.w.norm()
y = h * torch.sigmoid(self.w[0]) - F.softmax(self.w, 0)[1]
# overloads, positions and keywords
y = i & (i + 1)
y = i | (i + 1)
y = i ^ (i + 1)
y = ~i
y = i >> 1
y = torch.embedding(self.w, i)
y = torch.softmax(h, -1, torch.float64)
y = h.softmax(-1, torch.float64)
y = torch.log_softmax(h, -1, torch.float64)
y = torch.pow(h.abs() + 1, x)
y = h.masked_fill(h < 0, x.mean())
y = torch.sort(h, stable=True, dim=-1)[0]
y = torch.relu(input=h) + F.relu(input=x)
y = torch.sum(input=h, dim=1, keepdim=True)
y = torch.gather(input=h, dim=1, index=i.unsqueeze(-1))
y = torch.cat(tensors=(h, x), dim=1)
y = h.mean(1, True)
y = h.sum(1, True, dtype=torch.float64)
y = h.std(1, True)
y = torch.transpose(h, dim0=1, dim1=2)
y = torch.full((x.size(0), 6), x.size(1)) + h[:, 0]
y = torch.layer_norm(h, (6,))
y = torch.dropout(h, 0.3, self.training)
# random numbers
y = h + torch.randn_like(h)
y = h + torch.rand_like(h) * 0.1
y = h + torch.randn(x.shape)
y = h + torch.randn(x.size(0), 4, 6)
y = h * torch.bernoulli(torch.full_like(h, 0.5))
y = h * (torch.rand(x.size(0), 1, 1) > 0.5)
y = h + torch.normal(0.0, 1.0, size=h.shape)
y = h + torch.empty_like(h).normal_()
y = h + x.new_empty(x.size(0), 1, 1).bernoulli_(0.5)
y = h[:, torch.randperm(4)]
y = h[torch.randperm(x.size(0))]
y = torch.multinomial(h.softmax(-1).flatten(0, 1), 1)
y = h + torch.randint(0, 4, (4, 1))
y = h + torch.randn(4, 6)
"""

LINES = tuple(line for line in _TEXT.strip().splitlines() if not line.startswith("#"))
