"""Imported by the server of `processes` alone: all that a trainer loads, so that its forks need not."""

import torch

import tests.train.processes  # noqa: F401
from glint.model.decoder import Decoder
from glint.model.layout import Layout
from tests.train.tiny import MODEL

model = Decoder(MODEL).initialise(torch.Generator())
model(torch.zeros(2, dtype=torch.long), Layout((2,))).final_ND.sum().backward()  # the first call of a compiled loop loads it
_, cache = model.prefill([[0]])
model.step(torch.zeros(1, dtype=torch.long), cache)
