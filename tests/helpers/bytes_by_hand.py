"""The bytes of a training step from shapes alone, to compare the traced estimate with."""

from tlkit.models import architecture, meta_model


def closed_form(model: str, *, batch_size: int = 1, sequence_length: int = 512) -> dict[str, int]:
    """Of each part, for full fine-tuning of a Qwen2 or Llama preset in fp32 with AdamW.

    Where the backward pass goes through the loss, three tensors are as large as the logits: the log-probabilities,
    their gradient, and the gradient of the logits, which are freed themselves by then.
    """
    config = architecture(model)
    values = sum(p.numel() for p in meta_model(config).parameters())
    tokens, width = batch_size * (sequence_length - 1), config.hidden_size  # the last one of a row is only a label
    heads = config.num_attention_heads
    keys = getattr(config, "head_dim", None) or width // heads
    # What a block keeps of every token: residuals, norms and projections; keys and values; the gated MLP; two norms'
    # scales and the softmax sums of the heads.
    kept = 8 * width + 2 * keys * config.num_key_value_heads + 4 * config.intermediate_size + heads + 2
    return {
        "weights": 4 * values,
        "optimizer state": 8 * values,
        "gradients": 4 * values,
        "activations": 4 * tokens * config.num_hidden_layers * kept,
        "logits and loss": 4 * tokens * config.vocab_size * 3,
    }
