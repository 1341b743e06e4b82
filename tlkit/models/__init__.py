"""Models: where they are, how one is loaded, checked, adapted and saved, and what it writes."""

from tlkit.models.adapter_folders import check_save, save_model
from tlkit.models.generation import Continuation, chat_tokens, continue_tokens, generate, prompt_tokens
from tlkit.models.loading import LoadedModel, agreed_classes, architecture, download_needed, load_model, meta_model
from tlkit.models.sources import BUNDLED, PRESETS, WAY_ON, Preset, chosen_model, distinct_architectures, download
