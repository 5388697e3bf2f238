"""Published models: the sizes that decide what their caches and weights take. The one table of them.

Each row is read off the config.json that its owner publishes, on the Hugging Face Hub under `source`. All of
these use full attention in every layer, with K and V of equal width; a model of another kind (windows, latent
rows, states) does not belong here, because the formula for its cache is another one.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PublishedModel:
    """Sizes of one model.

    Attributes:
        name: as people say it.
        source: owner/name on the Hugging Face Hub.
        n_layers, n_heads, n_kv_heads, head_dim: as in `ModelConfig`.
        hidden_size, intermediate_size, vocab_size, max_seq_len: as in `ModelConfig`.
        tied: the readout uses the embedding's matrix.
        n_parameters: numbers in its weights.
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
    n_parameters: int

    def cache_nbytes_per_token(self, element_bytes: int = 2) -> int:
        """Bytes of one token's keys and values: 2 · L · Hkv · D · bytes an element."""
        return 2 * self.n_layers * self.n_kv_heads * self.head_dim * element_bytes


# fmt: off
_TABLE = (  # layers, query heads, KV heads, head_dim, hidden, intermediate, vocabulary, longest context, tied
    PublishedModel("GPT-2 small", "openai-community/gpt2", 12, 12, 12, 64, 768, 3072, 50257, 1024,
                   True, 124_439_808),
    PublishedModel("SmolLM2-135M", "HuggingFaceTB/SmolLM2-135M", 30, 9, 3, 64, 576, 1536, 49152, 8192,
                   True, 134_515_008),
    PublishedModel("Llama-2-7B", "meta-llama/Llama-2-7b-hf", 32, 32, 32, 128, 4096, 11008, 32000, 4096,
                   False, 6_738_415_616),
    PublishedModel("Llama-3.1-8B", "meta-llama/Llama-3.1-8B", 32, 32, 8, 128, 4096, 14336, 128256, 131072,
                   False, 8_030_261_248),
    PublishedModel("Llama-3.1-70B", "meta-llama/Llama-3.1-70B", 80, 64, 8, 128, 8192, 28672, 128256, 131072,
                   False, 70_553_706_496),
    PublishedModel("Qwen1.5-72B", "Qwen/Qwen1.5-72B", 80, 64, 64, 128, 8192, 24576, 152064, 32768,
                   False, 72_287_920_128),
)
# fmt: on
MODELS = {model.name: model for model in _TABLE}
