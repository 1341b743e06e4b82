"""The bytes of a training step from shapes alone, to compare the traced estimate with."""

from tlkit.models import architecture, meta_model


def closed_form(model: str, *, batch_size: int = 1, sequence_length: int = 512) -> dict[str, int]:
    """Of each part, both high moments and the peak, for full fine-tuning of a Qwen2 or Llama preset in fp32 with AdamW.

    A step has two high moments. Where the backward pass goes through the loss, all activations are kept, and three
    tensors are as large as the logits: the log-probabilities, their gradient, and the gradient of the logits, which
    are freed themselves by then. Where the backward pass ends, all gradients are there, and for a tied embedding those
    of its two uses and their sum. The larger one is the peak.
    """
    config = architecture(model)
    values = sum(p.numel() for p in meta_model(config).parameters())
    tokens, width = batch_size * (sequence_length - 1), config.hidden_size  # the last one of a row is only a label
    heads = config.num_attention_heads
    keys = getattr(config, "head_dim", None) or width // heads
    # What a block keeps of every token: residuals, norms and projections; keys and values; the gated MLP; two norms'
    # scales and the softmax sums of the heads.
    kept = 8 * width + 2 * keys * config.num_key_value_heads + 4 * config.intermediate_size + heads + 2
    table = config.vocab_size * width
    parts = {
        "weights": 4 * values,
        "optimizer state": 8 * values,
        "gradients": 4 * values,
        "activations": 4 * tokens * config.num_hidden_layers * kept,
        "logits and loss": 4 * tokens * config.vocab_size * 3,
        "second and third embedding gradient": 4 * table * (2 if config.tie_word_embeddings else 0),
    }
    lasting = parts["weights"] + parts["optimizer state"]
    at_the_loss = lasting + parts["activations"] + parts["logits and loss"]
    at_the_end = lasting + parts["gradients"] + parts["second and third embedding gradient"]
    return parts | {"at the loss": at_the_loss, "at the end": at_the_end, "peak": max(at_the_loss, at_the_end)}
