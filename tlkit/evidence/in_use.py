"""What a model knows and what it costs to keep and to use: measured before training and after each run."""

import json
import math
import time
from dataclasses import dataclass, field
from functools import partial

import torch

from tlkit.evidence.experiment import Experiment
from tlkit.evidence.questions import Answers, Question, answer_questions
from tlkit.evidence.tasks import Measured
from tlkit.fitting.fallback import FallbackLog, evaluate_with_fallback
from tlkit.jobs import SILENT, Part
from tlkit.models.parts import evaluation_mode, longest_input

NEW_TOKENS = 32
PROMPT = "In Rust, Vec<T> is"
SAFETENSORS_TYPES = {torch.bfloat16: "BF16", torch.bool: "BOOL"}  # all others: a letter and their bits


@dataclass(frozen=True)
class InUse:
    """A model in use.

    Attributes:
        answers: to each set of questions, by name; empty where none are asked.
        file_bytes: size of the file of weights.
        generate_seconds: time of `NEW_TOKENS` new tokens; NaN for a classifier.
        measured: what the task measures beside.
    """

    answers: dict[str, Answers]
    file_bytes: int
    generate_seconds: float
    measured: Measured = field(default_factory=Measured)


def measure_in_use(
    experiment: Experiment, model: torch.nn.Module, log: FallbackLog | None = None, progress: Part = SILENT
) -> InUse:
    """Answer the questions of an experiment, count what is to be saved, and time the writing of text.

    With the experiment's fallback, less is computed at a time where memory runs out, and `log` gets what fails.
    """

    def careful(action, rows: int):
        if not experiment.fallback:
            return action(rows)
        return evaluate_with_fallback(action, model, batch_size=rows, log=log)

    def answered(asked: tuple[Question, ...], rows: int) -> Answers:
        in_chat = experiment.task.in_chat
        return answer_questions(model, tokenizer, asked, in_chat=in_chat, batch_size=rows, progress=progress)

    def measured(_: int) -> Measured:
        documents, classes = experiment.corpus.test, experiment.classes
        return experiment.task.measure(model, tokenizer, documents, experiment.profile, classes, progress)

    tokenizer = experiment.tokenizer
    of_task = careful(measured, 1)
    if experiment.classes is not None:  # it writes nothing, and so answers nothing
        return InUse({}, file_bytes(model), math.nan, of_task)
    answers = {name: careful(partial(answered, asked), 8) for name, asked in experiment.questions.items()}
    return InUse(answers, file_bytes(model), careful(lambda _: generation_seconds(model, tokenizer), 1), of_task)


def file_bytes(model: torch.nn.Module) -> int:
    """Count the bytes of the file of weights that `save_model` would write: the adapter's, or the whole model's.

    The file's header names every tensor with its type, shape and place (https://huggingface.co/docs/safetensors); tied
    weights are there once.
    """
    if hasattr(model, "peft_config"):
        from peft import get_peft_model_state_dict

        tensors = get_peft_model_state_dict(model, save_embedding_layers=False)
    else:
        named = model.state_dict(keep_vars=True).items()
        tensors = dict(
            {id(tensor): (name, tensor) for name, tensor in reversed(named)}.values()
        )  # tied: the first name
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name in sorted(tensors, key=lambda name: (-tensors[name].element_size(), name)):
        tensor = tensors[name]
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": _type_of(tensor), "shape": list(tensor.shape), "data_offsets": [begin, end]}
    written = len(json.dumps(header, separators=(",", ":")))
    return 8 + (written + 7) // 8 * 8 + end


@torch.no_grad()
def generation_seconds(model: torch.nn.Module, tokenizer) -> float:
    """Time the writing of 32 tokens: greedy, one text at a time, with the cache of keys and values, after a warm-up.

    The end-of-text token does not stop it, so that all models write as much; NaN where one cannot read as many.
    """
    device = next(model.parameters()).device
    ids = torch.tensor([tokenizer(PROMPT, add_special_tokens=False)["input_ids"]], device=device)
    limit = longest_input(model)
    if limit and ids.shape[1] + NEW_TOKENS > limit:
        return float("nan")
    options = {"attention_mask": torch.ones_like(ids), "do_sample": False, "num_beams": 1, "use_cache": True}
    options["pad_token_id"] = tokenizer.eos_token_id or 0
    with evaluation_mode(model):
        model.generate(input_ids=ids, min_new_tokens=4, max_new_tokens=4, **options)
        _wait_for(device)
        started = time.perf_counter()
        model.generate(input_ids=ids, min_new_tokens=NEW_TOKENS, max_new_tokens=NEW_TOKENS, **options)
        _wait_for(device)
        return time.perf_counter() - started


def _type_of(tensor: torch.Tensor) -> str:
    if tensor.dtype in SAFETENSORS_TYPES:
        return SAFETENSORS_TYPES[tensor.dtype]
    kind = "F" if tensor.is_floating_point() else "I" if tensor.dtype.is_signed else "U"
    return f"{kind}{8 * tensor.element_size()}"


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":  # its work goes on when a call has returned
        torch.cuda.synchronize(device)
