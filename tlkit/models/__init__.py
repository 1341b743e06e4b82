"""Models: found, loaded, checked, adapted, saved, and what they write."""

from tlkit.models.generation import Continuation, chat_tokens, continue_tokens, prompt_tokens
from tlkit.models.loading import LoadedModel, agreed_classes, architecture, load_model, meta_model
from tlkit.models.saving import check_save, save_model
