"""Dimensions and parameter counts of published models, and the data sheets of the cards in dated.json.

Each model's dimensions are from the config.json that its owner publishes on the Hugging Face Hub, in the
repository `source`. The parameter counts are computed from these dimensions. The active parameters of a
mixture of experts are those used for one token, without the embedding. The owners count them in the same way
(arXiv:2508.10925 for gpt-oss, arXiv:2412.19437 for DeepSeek-V3).

The dimensions of the two models from 2026 are from other repositories. Those of Qwen3.5-27B are from
THUDM/slime, scripts/models/qwen3.5-27B.sh, and from the defaults of `Qwen3_5TextConfig` in transformers 5.
Those of MiniMax-M2.7 are from the config.json in amd/MiniMax-M2.7-BF16.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from helpers.cost.dated import DATED, DatedFact
from helpers.cost.layers import GIB, Full, Latent, LayerType, State, Window, cache_nbytes


class Experts(NamedTuple):
    """The number of experts in a layer of a mixture-of-experts model, and the number that each token uses."""

    n_experts: int
    n_chosen: int  # number of experts that each token uses


@dataclass(frozen=True)
class PublishedModel:
    """The dimensions, layer types and parameter counts of a published model.

    Attributes:
        name: name of the model.
        source: repository on the Hugging Face Hub, as owner/name; empty for a model read from a config.json.
        n_layers, n_heads, n_kv_heads, head_dim: as in `ModelConfig`.
        hidden_size, intermediate_size, vocab_size, max_seq_len: as in `ModelConfig`. In a mixture of experts,
            `intermediate_size` is that of one expert.
        tied: whether the LM head uses the embedding matrix.
        parameters: number of parameters; None if only the size of the KV cache can be computed.
        n_active: number of parameters used per token in a mixture of experts; None if all of them are used.
        qkv_bias: whether the projections to Q, K and V have biases.
        layers: the type of each layer that caches its own KV entries or state. By default, all layers have
            full attention. For layers with a state, the additional state of their convolution is not counted.
        experts: the experts in each layer that has experts; None in a dense model.
        notes: for a model read from a config.json, sentences on how its sizes were computed.
    """

    name: str
    source: str
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    hidden_size: int
    intermediate_size: int
    vocab_size: int
    max_seq_len: int
    tied: bool
    parameters: int | None
    n_active: int | None = None
    qkv_bias: bool = False
    layers: tuple[LayerType, ...] = field(default=(), hash=False)  # one per layer, so slow to hash
    experts: Experts | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        full = Full(self.n_kv_heads, self.head_dim, self.head_dim)
        object.__setattr__(self, "layers", self.layers or (full,) * self.n_layers)

    @property
    def n_parameters(self) -> int:
        """The number of parameters. If it is unknown, reading it raises ValueError with the reason."""
        if self.parameters is None:
            raise ValueError(f"{self.name}: {self.notes[0]}")
        return self.parameters

    def cache_nbytes_per_token(self, bytes_per_number: float = 2) -> int:
        """Return the number of bytes that the KV cache needs per token, over all layers.

        Raises:
            ValueError: a layer has a window or a state, so that the size of the KV cache is not proportional
                to the number of tokens.
        """
        if types := {type(layer) for layer in self.layers} & {Window, State}:
            what = "window" if Window in types else "state"
            raise ValueError(
                f"{self.name} has layers with a {what}, so no number of bytes per token is right; use "
                "cache_nbytes(model.layers, tokens)"
            )
        return cache_nbytes(self.layers, 1, bytes_per_number)


# fmt: off
_GPT_OSS = Window(8, 64, 64, 128), Full(8, 64, 64)
_GEMMA_3 = *(Window(16, 128, 128, 1024),) * 5, Full(16, 128, 128)
_QWEN_3_5 = *(State(48 * 128 * 128),) * 3, Full(4, 256, 256)
_TABLE = (  # layers, query heads, KV heads, head_dim, hidden, intermediate, vocabulary, longest context, tied
    PublishedModel("GPT-2 small", "openai-community/gpt2", 12, 12, 12, 64, 768, 3072, 50257, 1024,
                   True, 124_439_808),
    PublishedModel("SmolLM2-135M", "HuggingFaceTB/SmolLM2-135M", 30, 9, 3, 64, 576, 1536, 49152, 8192,
                   True, 134_515_008),
    PublishedModel("Llama-2-7B", "meta-llama/Llama-2-7b-hf", 32, 32, 32, 128, 4096, 11008, 32000, 4096,
                   False, 6_738_415_616),
    PublishedModel("Mistral-7B v0.1", "mistralai/Mistral-7B-v0.1", 32, 32, 8, 128, 4096, 14336, 32000, 32768,
                   False, 7_241_732_096, layers=(Window(8, 128, 128, 4096),) * 32),
    PublishedModel("Qwen2.5-7B", "Qwen/Qwen2.5-7B", 28, 28, 4, 128, 3584, 18944, 152064, 131072,
                   False, 7_615_616_512, qkv_bias=True),
    PublishedModel("Llama-3.1-8B", "meta-llama/Llama-3.1-8B", 32, 32, 8, 128, 4096, 14336, 128256, 131072,
                   False, 8_030_261_248),
    PublishedModel("gpt-oss-20b", "openai/gpt-oss-20b", 24, 64, 8, 64, 2880, 2880, 201088, 131072,
                   False, 20_914_757_184, n_active=3_608_307_264, layers=_GPT_OSS * 12,
                   experts=Experts(32, 4)),
    PublishedModel("Gemma-3-27B", "google/gemma-3-27b-pt", 62, 32, 16, 128, 5376, 21504, 262208, 131072,
                   True, 27_009_346_304, layers=(_GEMMA_3 * 11)[:62]),  # its text model
    PublishedModel("Qwen3.5-27B", "Qwen/Qwen3.5-27B", 64, 24, 4, 256, 5120, 17408, 248320, 262144,
                   False, 26_895_998_464, layers=_QWEN_3_5 * 16),  # its text model
    PublishedModel("Llama-3.1-70B", "meta-llama/Llama-3.1-70B", 80, 64, 8, 128, 8192, 28672, 128256, 131072,
                   False, 70_553_706_496),
    PublishedModel("Qwen1.5-72B", "Qwen/Qwen1.5-72B", 80, 64, 64, 128, 8192, 24576, 152064, 32768,
                   False, 72_287_920_128, qkv_bias=True),
    PublishedModel("gpt-oss-120b", "openai/gpt-oss-120b", 36, 64, 8, 64, 2880, 2880, 201088, 131072,
                   False, 116_829_156_672, n_active=5_132_849_472, layers=_GPT_OSS * 18,
                   experts=Experts(128, 4)),
    PublishedModel("MiniMax-M2.7", "MiniMaxAI/MiniMax-M2.7", 62, 48, 8, 128, 3072, 1536, 200064, 204800,
                   False, 228_689_764_864, n_active=10_415_956_480, experts=Experts(256, 8)),
    PublishedModel("Llama-3.1-405B", "meta-llama/Llama-3.1-405B", 126, 128, 8, 128, 16384, 53248, 128256,
                   131072, False, 405_853_388_800),
    PublishedModel("DeepSeek-V3", "deepseek-ai/DeepSeek-V3", 61, 128, 128, 128, 7168, 2048, 129280, 163840,
                   False, 671_026_419_200, n_active=36_625_618_432, experts=Experts(256, 8),
                   layers=(Latent(512, 64),) * 61),
)
# fmt: on
MODELS = {model.name: model for model in _TABLE}


@dataclass(frozen=True)
class Card:
    """The memory, compute and bandwidth of an accelerator, from its data sheet.

    Attributes:
        name: name of the accelerator.
        memory_nbytes: memory in bytes, with each GB on the data sheet taken as one GiB. This is exact for an
            "80 GB" A100, whose driver reports 81,920 MiB. The driver of an H100 reports a little less, 81,559
            MiB.
        flops_per_second: peak number of operations per second in 16-bit formats, without sparsity.
        bytes_per_second: memory bandwidth.
        source: URL of the data sheet.
        checked: the day or month in which the data sheet was last checked, such as "2026-11".
    """

    name: str
    memory_nbytes: int
    flops_per_second: float
    bytes_per_second: float
    source: str
    checked: str = ""


def card_from_entry(name: str, entry: DatedFact) -> Card:
    """Convert an entry of dated.json, in GB, TFLOP/s and GB/s, to a `Card`."""
    sheet = entry.value
    memory, flops, bandwidth = sheet["memory"] * GIB, sheet["operations"] * 1e12, sheet["bandwidth"] * 1e9
    return Card(name, memory, flops, bandwidth, entry.source, entry.checked)


CARDS = {name: card_from_entry(name, entry) for name, entry in DATED["cards"].items()}
