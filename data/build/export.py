"""Step 4: write the pretrained weights, in half precision, as the bundled model.

python data/build/export.py build-work data/tiny-qwen2
"""

import argparse
import hashlib
import json
import shutil
from pathlib import Path

import torch
import transformers
from pretrain import configuration
from transformers import AutoTokenizer, Qwen2ForCausalLM

from tlkit.evaluation import perplexity
from tlkit.models import load_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", type=Path)
    parser.add_argument("output", type=Path)
    arguments = parser.parse_args()

    saved = torch.load(arguments.work / "checkpoint.pt", weights_only=True)
    tokenizer = AutoTokenizer.from_pretrained(arguments.work / "model")
    model = Qwen2ForCausalLM(configuration(tokenizer.eos_token_id))
    model.load_state_dict(saved["model"])
    model.half().save_pretrained(arguments.output)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(arguments.work / "model" / name, arguments.output / name)
    # As published: half precision, computed in fp32; windows of 256 tokens that move by 128.
    loaded = load_model(arguments.output)
    paragraphs = [json.loads(line)["text"] for line in (arguments.work / "heldout.jsonl").read_text().splitlines()]
    held_out = {
        f"stride_{stride}": perplexity(loaded.model, loaded.tokenizer, paragraphs, context=256, stride=stride)
        for stride in (256, 128)
    }
    record = {
        "held_out": {"paragraphs": len(paragraphs)} | {name: vars(score) for name, score in held_out.items()},
        "steps": saved["step"],
        "minutes": round(saved["seconds"] / 60, 1),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "curve": saved["curve"],
        "extraction": json.loads((arguments.work / "extract.json").read_text()),
        "sha256": hashlib.sha256((arguments.output / "model.safetensors").read_bytes()).hexdigest(),
    }
    (arguments.output / "training_record.json").write_text(json.dumps(record, indent=2) + "\n")
    print(held_out["stride_256"], held_out["stride_128"], sep="\n")
    print(f"{arguments.output}: {sum(f.stat().st_size for f in arguments.output.iterdir()) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
