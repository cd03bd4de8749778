"""Makes the GGUF files of test/golden/gguf with the package `gguf`: storage formats with their numbers, small models of every
family as llama.cpp's converter writes them, and tokenizers with the ids of the tokenizers they were made from.

    python3 -m venv venv && venv/bin/pip install gguf transformers sentencepiece torch
    venv/bin/python test/golden/make-gguf.py test/golden [model.gguf]

Models that transformers' own loader reads are compared with it here. With SmolLM2's file it prints the hash that
trainer/models/gguf/smollm2.test.ts expects.
"""

import hashlib
import io
import json
import re
import sys
from pathlib import Path

import gguf
import numpy as np
import sentencepiece
import torch
from gguf import GGMLQuantizationType as Type
from safetensors.torch import load_file
from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers
from transformers import AutoModelForCausalLM

golden = Path(sys.argv[1])
out = golden / "gguf"
out.mkdir(exist_ok=True)
rng = np.random.default_rng(7)
TYPES = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"]
HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}


def blocks():
    """Two rows of random blocks of each format, and next to them their numbers as float32."""
    writer = gguf.GGUFWriter(out / "blocks.gguf", "llama")
    for name in TYPES:
        kind = Type[name]
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        count = max(1, 256 // elements)
        data = rng.integers(0, 256, (2, count, size), dtype=np.uint8)
        for at in HALVES.get(name, []):
            data[:, :, at : at + 2] = rng.normal(0, 2, (2, count, 1)).astype(np.float16).view(np.uint8)
        if name in ("F32", "F16", "BF16"):
            numbers = rng.normal(0, 2, (2, count)).astype(np.float32)
            data = gguf.quantize(numbers, kind).view(np.uint8)
        rows = data.reshape(2, -1)
        writer.add_tensor(name, rows, raw_dtype=kind)
        writer.add_tensor(f"{name}.expected", gguf.dequantize(rows, kind).astype(np.float32).reshape(2, -1))
    close(writer)


def close(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# name of the folder: architecture of llama.cpp
FAMILIES = {
    "llama3": "llama",
    "mistral": "llama",
    "qwen3": "qwen3",
    "qwen3-moe": "qwen3moe",
    "gemma2": "gemma2",
    "gemma3-text": "gemma3",
    "phi4-mini": "phi3",
    "smollm3": "smollm3",
    "olmo2": "olmo2",
}
EXPERTS = re.compile(r"model\.layers\.(\d+)\.mlp\.experts\.(\d+)\.(\w+)\.weight")


def permute(weight, heads):
    return weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def family(folder, arch):
    source = golden / "models/families" / folder
    config = json.loads((source / "config.json").read_text())
    writer = gguf.GGUFWriter(out / f"{folder}.gguf", arch)
    tensors = load_file(source / "model.safetensors")
    if arch == "qwen3moe":
        # In llama.cpp each layer has experts: without the one that has none.
        config["num_hidden_layers"] = 2
        tensors = {name.replace("layers.2.", "layers.1."): tensor for name, tensor in tensors.items() if ".layers.1." not in name}
    heads, kv = config["num_attention_heads"], config["num_key_value_heads"]
    head = config.get("head_dim") or config["hidden_size"] // heads
    rope = config.get("rope_parameters") or {}
    full = rope.get("full_attention", rope)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(full["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])
    if arch != "phi3":
        writer.add_key_length(head)
        writer.add_value_length(head)
        writer.add_rope_dimension_count(head)
    if arch in ("gemma2", "gemma3"):
        writer.add_sliding_window(config["sliding_window"])
    if arch == "gemma2":
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    if arch == "qwen3moe":
        writer.add_expert_count((config.get("num_experts") or config["num_local_experts"]))
        writer.add_expert_used_count(config["num_experts_per_tok"])
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    if full.get("rope_type") == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(full["factor"])
    if full.get("rope_type") == "longrope":
        writer.add_rope_dimension_count(int(head * full.get("partial_rotary_factor", 1)))
        original = config["original_max_position_embeddings"]
        writer.add_rope_scaling_orig_ctx_len(original)
        scale = config["max_position_embeddings"] / original
        factor = full.get("attention_factor") or (1 if scale <= 1 else np.sqrt(1 + np.log(scale) / np.log(original)))
        writer.add_rope_scaling_attn_factors(float(factor))
        for kind in ("short", "long"):
            writer.add_tensor(f"rope_factors_{kind}.weight", np.array(full[f"{kind}_factor"], np.float32))
        if config.get("sliding_window"):
            writer.add_sliding_window(config["sliding_window"])
    if full.get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_factors(full, head))
    kinds = {name: kind for kind, name in gguf.MODEL_ARCH_NAMES.items()}
    names = gguf.get_tensor_name_map(kinds[arch], config["num_hidden_layers"])
    experts = {}
    for name, tensor in tensors.items():
        if name == "lm_head.weight" and config.get("tie_word_embeddings"):
            continue
        if match := EXPERTS.fullmatch(name):
            layer, index, module = match.groups()
            experts.setdefault((layer, module), {})[int(index)] = tensor
            continue
        if arch in ("llama", "smollm3") and re.search(r"\.[qk]_proj\.weight$", name):
            tensor = permute(tensor, heads if ".q_proj" in name else kv)
        if arch.startswith("gemma") and name.endswith("norm.weight"):
            tensor = tensor.float() + 1
        add(writer, names.get_name(name, try_suffixes=(".weight", ".bias")), tensor)
    for (layer, module), parts in experts.items():
        stacked = torch.stack([parts[i] for i in range(len(parts))])
        add(writer, names.get_name(f"model.layers.{layer}.mlp.experts.{module}.weight", try_suffixes=(".weight",)), stacked)
    close(writer)
    compare(folder, arch, config, tensors)


def llama3_factors(rope, head):
    """As convert_hf_to_gguf.py has them."""
    freqs = 1.0 / (rope["rope_theta"] ** (torch.arange(0, head, 2, dtype=torch.float32) / head))
    low = rope["original_max_position_embeddings"] / rope["low_freq_factor"]
    high = rope["original_max_position_embeddings"] / rope["high_freq_factor"]
    factors = []
    for freq in freqs:
        wavelength = 2 * np.pi / freq
        if wavelength < high:
            factors.append(1)
        elif wavelength > low:
            factors.append(rope["factor"])
        else:
            smooth = (rope["original_max_position_embeddings"] / wavelength - rope["low_freq_factor"]) / (
                rope["high_freq_factor"] - rope["low_freq_factor"]
            )
            factors.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return np.array(factors, np.float32)


def add(writer, name, tensor):
    """bfloat16 as it is; norms are float32 in files of llama.cpp."""
    numbers = tensor.float().numpy()
    if numbers.ndim == 1:
        writer.add_tensor(name, numbers)
    else:
        writer.add_tensor(name, gguf.quantize(numbers, Type.BF16), raw_dtype=Type.BF16)


def compare(folder, arch, config, tensors):
    """transformers' loader reads the weights that the model has, where it knows the architecture."""
    try:
        model = AutoModelForCausalLM.from_pretrained(out, gguf_file=f"{folder}.gguf", dtype=torch.float32)
    except Exception as error:
        print(f"{folder}: not compared with transformers: {str(error)[:90]}")
        return
    state = model.state_dict()
    different = [name for name, tensor in tensors.items() if name in state and not torch.equal(state[name], tensor.float())]
    print(f"{folder}: transformers reads {len(state)} tensors, different: {different[:3]}")


TEXTS = [
    "Hello world, it's 1234567 o'clock!",
    "  Zwei  Leerzeichen\n\n\nund\tTabs \r\n",
    "① ² ½ Ⅷ ٣٤٥ ４２ 数字12字",
    "e\u0301 é ﬁ \U0001f44d\U0001f3fd ZWJ\u200d \u00a0nbsp",
    "HELLOWorld camelCase SHOUT's don't I'LL",
    "def f(x):\n    return x**2  # 10/3//4",
    "<|im_start|>user\nhi<|im_end|>\n",
    "",
    " ",
    "▁under _ ▁▁",
]
REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CLASSES = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def split(pattern):
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), byte_level])


def published():
    """How the tokenizer.json of GPT-2, SmolLM2, Llama 3, OLMo 2, Qwen2.5, Mistral Nemo and Phi-4-mini cut text."""
    words = lambda digits: r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|" + digits + "|" + REST
    upper, lower = CLASSES
    nemo = rf"[^\r\n\p{{L}}\p{{N}}]?{upper}*{lower}+|[^\r\n\p{{L}}\p{{N}}]?{upper}+{lower}*|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    after = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    phi = rf"[^\r\n\p{{L}}\p{{N}}]?{upper}*{lower}+{after}|[^\r\n\p{{L}}\p{{N}}]?{upper}+{lower}*{after}|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    return {
        "gpt-2": byte_level,
        "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level]),
        "llama-bpe": split(words(r"\p{N}{1,3}")),
        "dbrx": split(words(r"\p{N}{1,3}")),
        "qwen2": split(words(r"\p{N}")),
        "tekken": split(nemo),
        "gpt-4o": split(phi),
    }


def tokenizer_file(name, kind, tokens, kinds, keys):
    writer = gguf.GGUFWriter(out / f"tokenizer-{name}.gguf", "llama")
    writer.add_tokenizer_model(kind)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    keys(writer)
    close(writer)


def tokenizers():
    expected = {}
    source = (golden / "models/qwen2-tiny/tokenizer.json").read_text()
    plain = json.loads(source)
    added = {token["id"]: token for token in plain["added_tokens"]}
    vocabulary = sorted({**plain["model"]["vocab"], **{t["content"]: i for i, t in added.items()}}.items(), key=lambda pair: pair[1])
    for name, pre in published().items():
        tokenizer = Tokenizer.from_str(source)
        tokenizer.pre_tokenizer = pre
        tokenizer.normalizer = normalizers.NFC() if name == "qwen2" else normalizers.Sequence([])

        def keys(writer):
            writer.add_tokenizer_pre(name)
            writer.add_token_merges([" ".join(pair) for pair in plain["model"]["merges"]])
            writer.add_eos_token_id(tokenizer.token_to_id("<|im_end|>"))

        kinds = [3 if i in added and added[i]["special"] else 4 if i in added else 1 for _, i in vocabulary]
        tokenizer_file(name, "gpt2", [token for token, _ in vocabulary], kinds, keys)
        expected[name] = [tokenizer.encode(text, add_special_tokens=False).ids for text in TEXTS]
    for name, prefix in (("sentencepiece", True), ("sentencepiece-no-prefix", False)):
        model = io.BytesIO()
        corpus = (golden / "README.md").read_text().splitlines() * 3 + TEXTS
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(corpus), model_writer=model, model_type="bpe", vocab_size=600, byte_fallback=True,
            add_dummy_prefix=prefix, normalization_rule_name="identity", remove_extra_whitespaces=False,
            user_defined_symbols=["<start_of_turn>"], character_coverage=0.98,
        )  # fmt: skip
        processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
        ids = range(processor.get_piece_size())
        kind = lambda i: 2 if processor.is_unknown(i) else 3 if processor.is_control(i) else 6 if processor.is_byte(i) else 1

        def keys(writer):
            writer.add_token_scores([processor.get_score(i) for i in ids])
            writer.add_unk_token_id(0)
            writer.add_bos_token_id(1)
            writer.add_eos_token_id(2)
            writer.add_add_space_prefix(prefix)

        kinds = [4 if processor.id_to_piece(i) == "<start_of_turn>" else kind(i) for i in ids]
        tokenizer_file(name, "llama", [processor.id_to_piece(i) for i in ids], kinds, keys)
        expected[name] = [processor.encode(text) for text in TEXTS]
    (out / "tokenizers.json").write_text(json.dumps({"texts": TEXTS, "ids": expected}, ensure_ascii=False, separators=(",", ":")) + "\n")


def smollm2(path):
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    hasher = hashlib.sha256()
    state = {name: tensor for name, tensor in model.state_dict().items() if name != "lm_head.weight"}
    for name in sorted(state):
        hasher.update(name.encode())
        hasher.update(np.ascontiguousarray(state[name].numpy()).tobytes())
    print(f"{path.name}: {len(state)} tensors as transformers reads them, sha256 {hasher.hexdigest()}")


blocks()
for folder, arch in FAMILIES.items():
    family(folder, arch)
tokenizers()
if len(sys.argv) > 2:
    smollm2(Path(sys.argv[2]))
