"""A small decoder of the real mechanisms alone, in the order in which the library's text model has them."""

from typing import Any

import torch
from torch import Tensor, nn

from glint.model.hyperconnections import HyperConnection, collapse, spread
from glint.model.indexed import IndexedAttention, IndexedCache
from glint.model.kda import KDAState, KimiDeltaAttention
from glint.model.layout import Layout
from glint.model.primitives import rms_norm
from glint.model.sigmoid_moe import SigmoidMoE, clamped_mlp
from tests.mechanisms.weights import LAYERS, SIZES, VOCABULARY, WIDTH

STREAMS, EPSILON = 4, 1e-5


class DenseMLP(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.empty(width, 2 * hidden))
        self.down = nn.Parameter(torch.empty(hidden, width))

    def forward(self, x_ND: Tensor) -> tuple[Tensor, None]:
        return clamped_mlp(x_ND, self.up, self.down), None


class Layer(nn.Module):
    def __init__(self, index: int, sizes: dict[str, Any]) -> None:
        super().__init__()
        self.attn_hc, self.ffn_hc = HyperConnection(WIDTH, STREAMS), HyperConnection(WIDTH, STREAMS)
        self.attention_norm, self.ffn_norm = nn.Parameter(torch.ones(WIDTH)), nn.Parameter(torch.ones(WIDTH))
        self.attention: KimiDeltaAttention | IndexedAttention
        if index % 4 == 3:
            ranks = (sizes["q_lora_rank"], sizes["kv_lora_rank"], sizes["index_n_heads"], sizes["index_head_dim"])
            budget = (sizes["index_kpool"], sizes["index_topk"])
            self.attention = IndexedAttention(WIDTH, sizes["num_attention_heads"], sizes["v_head_dim"], *ranks, *budget)
        else:
            self.attention = KimiDeltaAttention(WIDTH, sizes["linear_num_heads"], sizes["linear_head_dim"])
        moe = (sizes["moe_intermediate_size"], sizes["n_routed_experts"], sizes["num_experts_per_tok"])
        self.ffn = SigmoidMoE(WIDTH, *moe) if index else DenseMLP(WIDTH, sizes["intermediate_size"])

    def attend(self, x_ND: Tensor, layout: Layout, caches: list[Any] | None, longest: int) -> Tensor:
        if isinstance(self.attention, IndexedAttention):
            return self.attention.forward(x_ND, layout, caches=caches, longest=longest)
        return self.attention.forward(x_ND, layout, states=caches)

    def step(self, x_RD: Tensor, positions_R: Tensor, cache: IndexedCache | KDAState) -> Tensor:
        if isinstance(self.attention, IndexedAttention):
            assert isinstance(cache, IndexedCache)
            return self.attention.step(x_RD, positions_R, cache)
        assert isinstance(cache, KDAState)
        return self.attention.step(x_RD, cache)


class Whole(nn.Module):
    def __init__(self, **changed: Any) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.empty(VOCABULARY, WIDTH))
        self.layers = nn.ModuleList(Layer(index, SIZES | changed) for index in range(LAYERS))
        self.final_norm = nn.Parameter(torch.ones(WIDTH))

    def forward(self, ids_N: Tensor, layout: Layout, caches: list[Any] | None = None, longest: int = 0) -> Tensor:
        """Return the normalised hidden states [N, D]."""
        return self._run(ids_N, lambda _, layer, x_ND: layer.attend(x_ND, layout, caches, longest))

    @torch.no_grad()
    def step(self, ids_R: Tensor, positions_R: Tensor, caches: list[Any]) -> Tensor:
        return self._run(ids_R, lambda index, layer, x_RD: layer.step(x_RD, positions_R, caches[index]))

    def _run(self, ids_N: Tensor, attend: Any) -> Tensor:
        streams = spread(self.embedding[ids_N], STREAMS)
        for index, layer in enumerate(self.layers):
            assert isinstance(layer, Layer)
            read, mixing = layer.attn_hc(streams)
            streams = mixing.write(streams, attend(index, layer, rms_norm(read, layer.attention_norm, EPSILON, torch.float32)))
            read, mixing = layer.ffn_hc(streams)
            streams = mixing.write(streams, layer.ffn(rms_norm(read, layer.ffn_norm, EPSILON, torch.float32))[0])
        return rms_norm(collapse(streams), self.final_norm, EPSILON, torch.float32)
