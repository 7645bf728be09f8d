"""Built-in models: made once, the same for the same recipe, with weights at scale, and really served by vLLM."""

import json
import os
import random
import shutil
import subprocess
import sys
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

from decodebench.engine import recipes
from decodebench.engine.installed import require_vllm
from decodebench.engine.models import resolve_model
from decodebench.engine.recipes import cache, tokenizer
from decodebench.engine.recipes.weights import range_at_width
from decodebench.engine.server import Server, ServerSpec
from decodebench.errors import DecodebenchError, UserError


def _vllm_is_installed() -> bool:
    try:
        require_vllm()
    except DecodebenchError:
        return False
    return True


needs_vllm = pytest.mark.skipif(not _vllm_is_installed(), reason="needs vLLM, torch and transformers")

LLAMA = recipes.get("tiny-llama")
MADE = [
    pytest.param(name, marks=pytest.mark.matrix if name.startswith("small-") else ())  # a gigabyte each
    for name in recipes.names()
]


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(cache.ROOT, str(tmp_path))
    return tmp_path


@pytest.fixture
def own_entry(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own that holds a copy of tiny-llama."""
    monkeypatch.delenv(cache.ROOT)
    made = LLAMA.materialise()
    monkeypatch.setenv(cache.ROOT, str(own_cache))
    return Path(shutil.copytree(made, own_cache / "models" / made.name))


def test_importing_recipes_imports_neither_torch_nor_vllm_nor_transformers():
    code = (
        "import sys; from decodebench.engine import recipes\n"
        "recipes.get(recipes.DEFAULT).vllm_args\n"
        "assert not {'torch', 'vllm', 'transformers', 'safetensors', 'numpy'} & set(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


def test_unknown_name_is_refused_with_the_names_there_are():
    with pytest.raises(UserError, match="tiny-lama") as refused:
        recipes.get("tiny-lama")
    assert "tiny-llama" in str(refused.value)


@pytest.mark.parametrize("name", recipes.names())
def test_recipe_is_named_after_itself_and_holds_its_largest_point(name: str):
    recipe = recipes.get(name)
    assert recipe.name == name
    assert recipe.max_model_len > recipe.fits.context_len
    assert recipe.config["max_position_embeddings"] >= recipe.max_model_len
    assert sum(group.kind == kind for kind in recipe.kinds for group in recipe.groups) == len(recipe.groups)


def test_range_at_width_keeps_the_gain_of_a_projection():
    assert range_at_width(0.02, family_width=4096, width=256) == pytest.approx(0.08)


@needs_vllm
@pytest.mark.parametrize("name", MADE)
def test_recipe_materialises_with_the_configuration_it_states(name: str):
    recipe = recipes.get(name)
    folder = recipe.materialise()
    written = json.loads((folder / "config.json").read_text())
    assert written == json.loads(json.dumps({**recipe.config, "dtype": recipe.dtype}))
    assert recipe.is_cached
    assert {path.name for path in folder.iterdir()} == {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        cache.DIGESTS,
    }


@needs_vllm
@pytest.mark.parametrize("name", MADE)
def test_weights_are_at_scale_and_finite(name: str):
    import torch
    from safetensors.torch import load_file

    recipe = recipes.get(name)
    asked = recipe.config["initializer_range"]
    tensors = load_file(recipe.materialise() / "model.safetensors")
    assert all(torch.isfinite(tensor).all() for tensor in tensors.values() if tensor.is_floating_point())
    projections = [t for name, t in tensors.items() if name.endswith(("q_proj.weight", "wq_a.weight"))]
    assert projections, "no query projection among the weights"
    for weight in projections:
        assert weight.float().std().item() == pytest.approx(asked, rel=0.05)


@needs_vllm
def test_same_recipe_gives_the_same_bytes(own_cache: Path, monkeypatch: pytest.MonkeyPatch):
    made_here = json.loads((LLAMA.materialise() / cache.DIGESTS).read_text())
    monkeypatch.delenv(cache.ROOT)
    assert json.loads((LLAMA.materialise() / cache.DIGESTS).read_text()) == made_here


def test_another_seed_configuration_or_dtype_is_another_entry():
    others = [
        replace(LLAMA, seed=1),
        replace(LLAMA, dtype="float32"),
        replace(LLAMA, config={**LLAMA.config, "num_hidden_layers": 3}),
        LLAMA,
    ]
    assert len({cache.key(recipe) for recipe in others}) == len(others)


@needs_vllm
def test_entry_that_was_changed_on_disk_is_not_used(own_entry: Path):
    assert LLAMA.is_cached
    weights = own_entry / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert not LLAMA.is_cached


@needs_vllm
@pytest.mark.parametrize("file", ["config.json", "model.safetensors", cache.DIGESTS])
def test_entry_with_a_file_missing_is_not_used(own_entry: Path, file: str):
    (own_entry / file).unlink()
    assert not LLAMA.is_cached


@needs_vllm
def test_damaged_entry_is_made_again(own_entry: Path):
    (own_entry / "model.safetensors").write_bytes(b"half")
    assert LLAMA.materialise() == own_entry
    assert LLAMA.is_cached


def test_recipe_that_cannot_be_made_leaves_nothing_and_says_why(own_cache: Path):
    broken = replace(LLAMA, name="tiny-none")
    with pytest.raises(recipes.RecipeError, match="tiny-none"):
        broken.materialise()
    assert list((own_cache / "models").iterdir()) == []


@needs_vllm
def test_clean_removes_entries_and_remains_of_killed_makers(own_entry: Path):
    (own_entry.parent / ".tiny-llama-0-half").mkdir()
    assert len(cache.entries()) == 2
    assert sum(entry.num_bytes for entry in cache.clean()) > 1_000_000
    assert cache.entries() == []


def test_cache_lies_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(cache.ROOT, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.root() == tmp_path / "xdg" / "decodebench"
    monkeypatch.setenv(cache.ROOT, str(tmp_path / "own"))
    assert cache.root() == tmp_path / "own"


@needs_vllm
def test_tokenizer_reads_back_every_word(tmp_path: Path):
    from transformers import AutoTokenizer

    tokenizer.write(tmp_path, vocab_size=4096, max_tokens=128)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    ids = list(range(4096))
    assert len(loaded) == 4096
    assert loaded.convert_tokens_to_ids(tokenizer.words(4096)) == ids
    assert loaded(" ".join(tokenizer.words(4096)[4:]))["input_ids"] == ids[4:]
    assert (loaded.pad_token_id, loaded.bos_token_id, loaded.eos_token_id) == (0, 1, 2)


def test_words_are_distinct_up_to_the_largest_vocabulary():
    words = tokenizer.words(tokenizer.MAX_VOCAB)
    assert len(set(words)) == tokenizer.MAX_VOCAB == len(words)


IN_EVERY_RUN = ("tiny-gemma3",)


@needs_vllm
@pytest.mark.engine
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in IN_EVERY_RUN else pytest.mark.matrix)
        for name in recipes.names()
    ],
)
def test_recipe_is_served_with_the_groups_it_states_and_answers_with_varied_tokens(name: str, tmp_path: Path):
    model = resolve_model(name)
    groups = tmp_path / "groups.json"
    probe = {
        "kv_connector": "GroupsProbe",
        "kv_connector_module_path": "groups_probe",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"path": str(groups)},
    }
    here = str(Path(__file__).parent)
    spec = ServerSpec(
        model=model.path,
        args=(*model.vllm_args, "--kv-transfer-config", json.dumps(probe)),
        env={**model.env, "PYTHONPATH": os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))},
        log_path=tmp_path / "server.log",
        startup_timeout_s=560,
    )
    with Server(spec) as server:
        server.start()
        answers = complete(server.base_url, name, prompts=random_prompts(count=4, length=300), max_tokens=16)
    assert json.loads(groups.read_text()) == [
        {"kind": group.kind, "layers": group.layers} for group in recipes.get(name).groups
    ]
    assert len({tuple(answer) for answer in answers}) == len(answers), "prompts do not matter"
    assert all(len(set(answer)) > len(answer) / 2 for answer in answers), f"greedy answers repeat: {answers}"
    if recipes.get(name).dtype == "float32":  # bfloat16 leaves ties to the order of additions
        assert answers == greedy_by_transformers(Path(model.path), random_prompts(4, 300), max_tokens=16)


def random_prompts(count: int, length: int) -> list[list[int]]:
    draw = random.Random(1)
    return [[draw.randrange(4, 4096) for _ in range(length)] for _ in range(count)]


def greedy_by_transformers(folder: Path, prompts: list[list[int]], max_tokens: int) -> list[list[int]]:
    """What the family's reference implementation answers: the weights are read right, the kernels compute right."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    rule = {
        "do_sample": False,
        "eos_token_id": None,
        "pad_token_id": tokenizer.PAD,
        "max_new_tokens": max_tokens,
    }
    return [model.generate(torch.tensor([ids]), **rule)[0, len(ids) :].tolist() for ids in prompts]


def complete(base_url: str, model: str, prompts: list[list[int]], max_tokens: int) -> list[list[int]]:
    body = {
        "model": model,
        "prompt": prompts,
        "max_tokens": max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "return_token_ids": True,
    }
    request = urllib.request.Request(
        base_url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=300) as response:
        return [choice["token_ids"] for choice in json.load(response)["choices"]]
