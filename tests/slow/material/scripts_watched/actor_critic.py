"""An actor and a critic on one body, a backward call for each, in a small world of its own."""

import torch
from show import show
from torch import nn


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 32), nn.Tanh())
        self.actor, self.critic = nn.Linear(32, 3), nn.Linear(32, 1)

    def forward(self, state):
        inside = self.body(state)
        return torch.distributions.Categorical(logits=self.actor(inside)), self.critic(
            inside
        ).squeeze(-1)


torch.manual_seed(7)
policy = Policy()
optimizer = torch.optim.RMSprop(policy.parameters(), 3e-3)
for step in range(1, 81):
    state, log_probs, values, rewards = torch.rand(2) - 0.5, [], [], []
    for _ in range(8):
        choice, value = policy(state)
        action = choice.sample()
        state = state + 0.1 * torch.stack([action - 1.0, torch.randn(())])
        log_probs.append(choice.log_prob(action))
        values.append(value)
        rewards.append(-state[0].abs().item())
    gains = torch.tensor(rewards).flip(0).cumsum(0).flip(0)
    advantage = gains - torch.stack(values)
    optimizer.zero_grad()
    critic_loss = advantage.square().mean()
    critic_loss.backward(retain_graph=True)
    actor_loss = -(torch.stack(log_probs) * advantage.detach()).mean()
    actor_loss.backward()
    show(step, critic_loss.item() + actor_loss.item(), policy=policy)
    optimizer.step()
