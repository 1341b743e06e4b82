"""Step 2: train the byte-level BPE tokenizer on the training paragraphs.

    python data/build/tokenizer.py build-work

Writes `build-work/model/tokenizer.json` and `tokenizer_config.json`.
"""

import argparse
import json
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

VOCABULARY = 4096
END_OF_TEXT = "<|endoftext|>"
# Words with their leading space, digits one at a time, runs of punctuation: Qwen2's own way of cutting text.
PIECES = Regex(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", type=Path)
    work = parser.parse_args().work

    with open(work / "train.jsonl", encoding="utf-8") as file:
        texts = [json.loads(line)["text"] for line in file]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(PIECES, behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END_OF_TEXT,
        pad_token=END_OF_TEXT,
        clean_up_tokenization_spaces=False,
        model_max_length=256,
    )
    fast.save_pretrained(work / "model")
    sample = "\n".join(texts[:2000])
    tokens = len(fast(sample)["input_ids"])
    print(f"{len(fast)} tokens in the vocabulary; {len(sample.encode()) / tokens:.2f} bytes a token")


if __name__ == "__main__":
    main()
