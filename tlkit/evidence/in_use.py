"""What a model knows and what it costs to keep and to use: measured before training and after each run."""

import math
import time
from dataclasses import dataclass, field
from functools import partial

import torch
from peft import get_peft_model_state_dict

from tlkit.evidence.experiment import Experiment
from tlkit.evidence.questions import Answers, answer_questions
from tlkit.evidence.tasks import Measured
from tlkit.fitting.fallback import FallbackLog, evaluate_with_fallback
from tlkit.jobs import SILENT, Part
from tlkit.models.parts import evaluation_mode, longest_input

NEW_TOKENS = 32
PROMPT = "In Rust, Vec<T> is"


@dataclass(frozen=True)
class InUse:
    """A model in use.

    Attributes:
        answers: to each set of questions, by name; empty where none are asked.
        weight_bytes: of the weights that would be saved.
        generate_seconds: time of `NEW_TOKENS` new tokens; NaN for a classifier.
        measured: what the task measures beside.
    """

    answers: dict[str, Answers]
    weight_bytes: int
    generate_seconds: float
    measured: Measured = field(default_factory=Measured)


def measure_in_use(
    experiment: Experiment, model: torch.nn.Module, log: FallbackLog | None = None, progress: Part = SILENT
) -> InUse:
    """Answer the questions of an experiment, count what is to be saved, and time the writing of text.

    With the experiment's fallback, less is computed at a time where memory runs out, and `log` gets what fails.
    """
    tokenizer = experiment.tokenizer

    def careful(action, rows: int = 1):
        if not experiment.fallback:
            return action(rows)
        return evaluate_with_fallback(action, model, batch_size=rows, log=log)

    def answered(asked, rows: int) -> Answers:
        options = {"in_chat": experiment.task.in_chat, "batch_size": rows, "progress": progress}
        return answer_questions(model, tokenizer, asked, **options)

    measured = careful(lambda _: experiment.measure(model, experiment.corpus.test, progress))
    answers = {name: careful(partial(answered, asked), 8) for name, asked in experiment.questions.items()}
    seconds = math.nan if experiment.classes else careful(lambda _: generation_seconds(model, tokenizer))
    return InUse(answers, saved_bytes(model), seconds, measured)


def saved_bytes(model: torch.nn.Module) -> int:
    """Count the bytes of the weights that `save_model` would write: the adapter's, or the model's, tied ones once."""
    tensors = model.state_dict(keep_vars=True)
    if hasattr(model, "peft_config"):
        tensors = get_peft_model_state_dict(model, save_embedding_layers=False)
    return sum(tensor.nbytes for tensor in {id(tensor): tensor for tensor in tensors.values()}.values())


@torch.no_grad()
def generation_seconds(model: torch.nn.Module, tokenizer) -> float:
    """Time the writing of 32 tokens: greedy, one text at a time, with the cache of keys and values, after a warm-up.

    The end-of-text token does not stop it, so that all models write as much; NaN where one cannot read as many.
    """
    device = next(model.parameters()).device
    ids = torch.tensor([tokenizer(PROMPT, add_special_tokens=False)["input_ids"]], device=device)
    limit = longest_input(model)
    if limit and ids.shape[1] + NEW_TOKENS > limit:
        return math.nan
    options = {"attention_mask": torch.ones_like(ids), "do_sample": False, "num_beams": 1, "use_cache": True}
    options["pad_token_id"] = tokenizer.eos_token_id or 0
    with evaluation_mode(model):
        for tokens in (4, NEW_TOKENS):
            started = time.perf_counter()
            model.generate(input_ids=ids, min_new_tokens=tokens, max_new_tokens=tokens, **options)
            if device.type == "cuda":  # its work goes on when a call has returned
                torch.cuda.synchronize(device)
        return time.perf_counter() - started
