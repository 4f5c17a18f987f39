"""Imported by the server of `processes` alone: all that a trainer loads, so that its forks need not."""

import torch

import tests.train.processes  # noqa: F401

torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))])  # the first optimiser of a process imports modules for seconds
