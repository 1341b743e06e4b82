"""Models: where they are, how one is loaded, checked, adapted and saved, and what it writes."""

from tlkit.models.generation import Continuation, chat_tokens, continue_tokens, prompt_tokens
from tlkit.models.loading import LoadedModel, agreed_classes, architecture, load_model, meta_model
from tlkit.models.presets import BUNDLED, PRESETS, WAY_ON, chosen_model, distinct_architectures, fetched_folder
from tlkit.models.saving import check_save, save_model
