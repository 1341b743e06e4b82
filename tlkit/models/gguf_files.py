"""Turn a GGUF file into a folder that every library loads: safetensors in fp32, tokenizer, chat template."""

from pathlib import Path

import torch
import transformers
from tokenizers import pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PretrainedConfig,
    PreTrainedTokenizerBase,
)

from tlkit.models.checks import refuse_partial_load
from tlkit.models.loading import OFFLINE, meta_model

# How text is cut before its tokens are merged, where transformers' loader leaves out what the file says.
# Source: llama.cpp, LLAMA_VOCAB_PRE_TYPE_SMOLLM, which is SmolLM's own tokenizer.json.
CUTS = {
    "smollm": pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
}

SPECIAL_TOKENS = {
    "bos_token": "tokenizer.ggml.bos_token_id",
    "eos_token": "tokenizer.ggml.eos_token_id",
    "unk_token": "tokenizer.ggml.unknown_token_id",
    "pad_token": "tokenizer.ggml.padding_token_id",
}


def convert(file: Path, folder: Path) -> None:
    """Read a GGUF file by transformers' own loader, and save what it holds as an ordinary model.

    Rounded weights become the fp32 values that they stand for: nothing is gained back.

    Args:
        file: of an architecture that transformers reads.
        folder: is made, with the model in it.

    Raises:
        RuntimeError: where weights are missing, or the file has some that the model leaves out.
    """
    here = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name, **OFFLINE}
    if hasattr(transformers, "GgufConfig"):  # from 5.23 on blocks would stay packed where `kernels` is installed
        here["quantization_config"] = transformers.GgufConfig(dequantize=True)
    model, loading = AutoModelForCausalLM.from_pretrained(dtype=torch.float32, output_loading_info=True, **here)
    refuse_partial_load(file.name, loading, frozenset(key for key, _ in model.named_buffers()))
    tokenizer = _tokenizer(file)
    tokenizer.model_max_length = model.config.max_position_embeddings

    # The model that was read calls itself quantized and refuses to be saved, so its weights go into a plain one.
    plain = meta_model(_plain(model.config))
    plain.load_state_dict(model.state_dict(), assign=True)
    plain.tie_weights()
    special = {f"{kind}_token_id": getattr(tokenizer, f"{kind}_token_id") for kind in ("bos", "eos", "pad")}
    plain.generation_config = GenerationConfig(**special)
    plain.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _plain(config: PretrainedConfig) -> PretrainedConfig:
    """The configuration without a trace of the file that it was read from."""
    about_the_file = ("quantization_config", "_name_or_path", "_model_name_or_path")
    return type(config)(**{key: value for key, value in config.to_dict().items() if key not in about_the_file})


def _tokenizer(file: Path) -> PreTrainedTokenizerBase:
    """With what the file says and the loader does not do: not all of its releases set the special tokens."""
    from gguf import GGUFReader

    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name, **OFFLINE)
    fields = GGUFReader(file).fields
    for token, key in SPECIAL_TOKENS.items():
        if key in fields:
            setattr(tokenizer, token, tokenizer.convert_ids_to_tokens(int(fields[key].contents())))
    if "tokenizer.chat_template" in fields:
        tokenizer.chat_template = fields["tokenizer.chat_template"].contents()
    cut = fields.get("tokenizer.ggml.pre")
    if cut is not None and cut.contents() in CUTS:
        tokenizer.backend_tokenizer.pre_tokenizer = CUTS[cut.contents()]
    return tokenizer
