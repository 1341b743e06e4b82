"""What students answer instead, and a part of what they are told. Each is a mistake with a reason behind it."""

from torch import nn

TABLE, TOTAL = 151_936 * 1_536, 1_543_714_304


def _one_memory(model):
    model.get_output_embeddings().weight = nn.Parameter(model.get_input_embeddings().weight.detach())
    model.config.tie_word_embeddings = False
    return model


def _fresh_numbers(model):
    model.lm_head = nn.Linear(model.config.hidden_size, model.config.vocab_size, bias=False)
    model.config.tie_word_embeddings = False
    return model


def _tied_again(model):
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.clone())
    return model


def _only_the_settings(model):
    model.config.tie_word_embeddings = False
    return model


WRONG = {
    "ex06_1": [
        ((TABLE / TOTAL, TABLE / (TOTAL + TABLE)), "percent are asked for"),
        ((200 * TABLE / TOTAL, 100 * TABLE / TOTAL), "it was counted twice"),
        ((100 * TABLE / TOTAL, 100 * TABLE / TOTAL), "comes on top"),
        ((100 * TABLE / TOTAL, 200 * TABLE / (TOTAL + TABLE)), "is not frozen by freezing the embedding"),
        ((100 - 100 * TABLE / TOTAL, 100 - 100 * TABLE / (TOTAL + TABLE)), "what is left to train"),
        ((13.13, 15.12), "in each other's place"),
        (15.12, "2 numbers are asked for"),
    ],
    "ex06_2": [
        (lambda model: model.lm_head.weight is not model.model.embed_tokens.weight, "only whether the head is tied"),
        (lambda model: any(p.requires_grad for p in model.parameters()), "whenever anything in the model trains"),
        (lambda model: dict(model.named_parameters())["lm_head.weight"].requires_grad, "the name of its first use"),
        (
            lambda model: any(p.requires_grad for name, p in model.named_parameters() if "lm_head" in name),
            "under the name of the embedding",
        ),
        (lambda model: model.get_input_embeddings().weight.requires_grad, "the table of the embedding is another one"),
        (lambda model: model.get_output_embeddings().weight.numel(), "True or False is asked for"),
    ],
    "ex06_3": [
        (lambda model: model, "still one tensor"),
        (_only_the_settings, "still one tensor"),
        (_one_memory, "one memory behind both"),
        (_fresh_numbers, "scores tokens differently"),
        (_tied_again, "one tensor again"),
        (lambda model: model.get_output_embeddings(), "the model is to be returned"),
    ],
}
