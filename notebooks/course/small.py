"""A model for answers to be tried on."""


def small_model(kind: str = "qwen2", *, depth: int = 2, tied: bool = True, weights: bool = False):
    """A model of an architecture, too small to wait for; without `weights` on paper only."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from tlkit.models import meta_model

    shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": depth, "num_attention_heads": 2}
    tokens = {"vocab_size": 64, "bos_token_id": 0, "eos_token_id": 0, "tie_word_embeddings": tied}
    config = AutoConfig.for_model(kind, num_key_value_heads=2, **shape, **tokens)
    if not weights:
        return meta_model(config)
    with torch.random.fork_rng(devices=[]):  # the reader's own random numbers stay as they are
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(config)
