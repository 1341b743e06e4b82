"""Step 4: write the pretrained weights, in half precision, as the bundled model.

python data/build/export.py build-work data/tiny-qwen2
"""

import argparse
import hashlib
import json
import shutil
from pathlib import Path

import torch
from pretrain import configuration
from transformers import AutoTokenizer, Qwen2ForCausalLM


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
    record = {
        "steps": saved["step"],
        "minutes": round(saved["seconds"] / 60, 1),
        "torch": torch.__version__,
        "curve": saved["curve"],
        "extraction": json.loads((arguments.work / "extract.json").read_text()),
        "sha256": hashlib.sha256((arguments.output / "model.safetensors").read_bytes()).hexdigest(),
    }
    (arguments.output / "training_record.json").write_text(json.dumps(record, indent=2) + "\n")
    print(f"{arguments.output}: {sum(f.stat().st_size for f in arguments.output.iterdir()) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
