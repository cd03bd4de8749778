"""Makes the golden tokenizers of test/golden/models/tokenizers: the classes that transformers has for the families, trained
on a few sentences, with what they encode and decode, and chat templates with what jinja2 renders. The templates were written
down from memory after those of the families: they have their constructs, and may differ from what is published today.

    python3 -m venv venv && venv/bin/pip install transformers jinja2
    venv/bin/python test/golden/make-tokenizers.py test/golden/models/tokenizers

Python's side of trainer/models/tokenizer/load.test.ts.
"""

import json
import random
import sys
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import GemmaTokenizer, LlamaTokenizer, PreTrainedTokenizerFast, Qwen2Tokenizer

CORPUS = [
    "Turn 1: State: You walk on the frozen lake. Choose Left, Right, Up or Down.",
    "<think> the goal is below, so I go down </think><answer>Down</answer> Reward: -0.1",
    "The quick brown fox doesn't jump over 13 lazy dogs; we've seen 2048 tiles and 3.14159.",
    "    indented\n\ttabs\r\n\n\nand blank lines   with   spaces  ",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. El niño comió piñata.",
]
VOCABULARY = 360
# Llama 3, which SmolLM3 and OLMo 2 (through dolma2) have, too: digits in threes.
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

TEMPLATES = {
    "gemma": "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}",
    "gemma3": """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '\n\n' -%}
    {%- else -%}
        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '\n\n' -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start_of_turn>' + role + '\n' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'text' -%}
                {{ item['text'] | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- endif -%}
    {{ '<end_of_turn>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model\n'}}
{%- endif -%}
""",
    "mistral": "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token}}{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}",
    "phi3": "{% for message in messages %}{% if message['role'] == 'system' %}{{'<|system|>\n' + message['content'] + '<|end|>\n'}}{% elif message['role'] == 'user' %}{{'<|user|>\n' + message['content'] + '<|end|>\n'}}{% elif message['role'] == 'assistant' %}{{'<|assistant|>\n' + message['content'] + '<|end|>\n'}}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}",
    "olmo2": "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'system' %}{{ '<|system|>\n' + message['content'] + '\n' }}{% elif message['role'] == 'user' %}{{ '<|user|>\n' + message['content'] + '\n' }}{% elif message['role'] == 'assistant' %}{% if not loop.last %}{{ '<|assistant|>\n'  + message['content'] + eos_token + '\n' }}{% else %}{{ '<|assistant|>\n'  + message['content'] + eos_token }}{% endif %}{% endif %}{% if loop.last and add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}{% endfor %}",
}
CHATS = [
    [("user", " Turn 1:\nState:\n#P_\n ")],
    [("user", "Hi"), ("assistant", "<think>go</think><answer>Up</answer>"), ("user", "Reward: -0.1")],
    [("system", "You're a helpful assistant."), ("user", "Hi"), ("assistant", "Hello")],
]


def spaced_bpe(kind, specials):
    """BPE over text whose spaces are ▁, with bytes for what it does not know: SentencePiece's, as Llama 2 and Gemma have it."""
    trained = Tokenizer(models.BPE())
    trained.normalizer = normalizers.Replace(" ", "▁")
    if kind is not GemmaTokenizer:
        trained.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY - 256, show_progress=False)
    trained.train_from_iterator(CORPUS, trainer)
    model = json.loads(trained.to_str())["model"]
    names = [*specials, *(f"<0x{byte:02X}>" for byte in range(256))]
    vocabulary = {name: index for index, name in enumerate(names)}
    for name in model["vocab"]:
        vocabulary.setdefault(name, len(vocabulary))
    return kind(vocab=vocabulary, merges=[tuple(merge) for merge in model["merges"]])


def byte_level(pattern, specials, bos, eos):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in specials])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=bos, eos_token=eos, pad_token=eos)


def phi3():
    tokenizer = spaced_bpe(LlamaTokenizer, ["<unk>", "<s>", "</s>"])
    tokens = [AddedToken(f"<|{name}|>", special=True, rstrip=True) for name in ("user", "assistant", "system", "end")]
    tokenizer.add_special_tokens({"additional_special_tokens": tokens})
    return tokenizer


def gemma():
    tokenizer = spaced_bpe(GemmaTokenizer, ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"])
    tokenizer.add_special_tokens({"additional_special_tokens": ["<start_of_turn>", "<end_of_turn>"]})
    return tokenizer


def qwen():
    tokenizer = Qwen2Tokenizer().train_new_from_iterator(CORPUS, VOCABULARY)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    return tokenizer


# name: how it is made, its chat template
TOKENIZERS = {
    "qwen3-moe": (qwen, None),
    "mistral": (lambda: spaced_bpe(LlamaTokenizer, ["<unk>", "<s>", "</s>"]), "mistral"),
    "phi3": (phi3, "phi3"),
    "gemma2": (gemma, "gemma"),
    "gemma3-text": (gemma, "gemma3"),
    "smollm3": (
        lambda: byte_level(LLAMA3, ["<|im_start|>", "<|im_end|>", "<think>", "</think>"], None, "<|im_end|>"),
        None,
    ),
    "olmo2": (lambda: byte_level(LLAMA3, ["<|endoftext|>"], "<|endoftext|>", "<|endoftext|>"), "olmo2"),
}


def texts():
    rng = random.Random(7)
    letters = "aeiou STDR tn.,;:!?'\"#_-=0123456789\n\t<>/|()[]{}äöüßéñçøåж中文日本語한글🙂👍🏽é\u200b\u00a0"
    drawn = ["".join(rng.choice(letters) for _ in range(rng.randrange(1, 24))) for _ in range(60)]
    return [*CORPUS, "", " ", "  ", "a", " a", "a ", "▁", "<0x41>", "it's I'LL 'tis", "1234567890", *drawn]


def make(name, out):
    create, template = TOKENIZERS[name]
    tokenizer = create()
    folder = out / name
    if template is not None:
        tokenizer.chat_template = TEMPLATES[template]
    tokenizer.save_pretrained(folder)
    for extra in folder.iterdir():
        if extra.name not in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            extra.unlink()
    (folder / "tokenizer.json").write_text(json.dumps(json.loads((folder / "tokenizer.json").read_text())) + "\n")
    specials = [token for token in tokenizer.all_special_tokens if token not in ("<unk>", "<pad>", "<mask>")]
    rows = []
    for text in [*texts(), *(f"a{token} b{token}\n" for token in specials)]:
        ids = tokenizer.encode(text, add_special_tokens=False)
        rows.append(dict(text=text, ids=ids, decoded=tokenizer.decode(ids, clean_up_tokenization_spaces=False)))
    chats = []
    for chat in CHATS if template is not None else []:
        messages = [dict(role=role, content=content) for role, content in chat]
        for generate in (True, False):
            try:
                text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=generate)
            except Exception as error:
                text = None
                print(f"{name} refuses {messages[0]['role']}: {error}")
            chats.append(dict(messages=messages, add_generation_prompt=generate, text=text))
    expected = dict(tokenizer=rows, chat=chats)
    (folder / "expected.json").write_text(json.dumps(expected, ensure_ascii=False) + "\n")
    print(f"{name}: {len(tokenizer)} tokens, {len(rows)} texts, {len(chats)} chats")


if __name__ == "__main__":
    for wanted in sys.argv[2:] or TOKENIZERS:
        make(wanted, Path(sys.argv[1]))
