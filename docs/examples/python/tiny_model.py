"""A Qwen2 of 20,000 weights that knows how a tool call is written, to try trainers of language models on a processor.

    python docs/examples/python/tiny_model.py FOLDER TOOL [TOOL ...]

Its next token follows from its last one alone: an answer is mostly a call of one of the tools, each as likely as the
others, and now and then any other token. What it calls when is left to the trainer.
"""

from __future__ import annotations

import sys

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl.chat_template_utils import qwen2_5_chat_template

WIDTH = 64
CERTAIN = 8.0  # logit above those of other tokens


def tokenizer_of(tools: list[str]) -> PreTrainedTokenizerFast:
    """Bytes, the marks of a chat, and each tool's call without arguments as one token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({character: i for i, character in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens(["assistant\n", *map(call_of, tools)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=qwen2_5_chat_template,
        padding_side="left",
    )


def call_of(tool: str) -> AddedToken:
    return AddedToken(f'<tool_call>\n{{"name": "{tool}", "arguments": {{}}}}\n</tool_call>', normalized=False)


def tiny_model(folder: str, tools: list[str]) -> None:
    torch.manual_seed(0)
    tokenizer = tokenizer_of(tools)
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(tokenizer),
            hidden_size=WIDTH,
            intermediate_size=WIDTH,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=8192,
            tie_word_embeddings=False,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    calls = tokenizer.convert_tokens_to_ids([str(call_of(tool).content) for tool in tools])
    begin = tokenizer.convert_tokens_to_ids("assistant\n")
    with torch.no_grad():
        layer = model.model.layers[0]
        # A layer that adds nothing yet: the next token follows from the embedding of the last.
        layer.self_attn.o_proj.weight.mul_(0.01)
        layer.mlp.down_proj.weight.mul_(0.01)
        model.model.embed_tokens.weight.normal_()
        seen = torch.nn.functional.normalize(model.model.embed_tokens.weight, dim=1) * WIDTH**0.5
        model.lm_head.weight.normal_(std=0.01)
        for call in calls:
            model.lm_head.weight[call] += CERTAIN / WIDTH * seen[begin]
            model.lm_head.weight[tokenizer.eos_token_id] += CERTAIN / WIDTH * seen[call]
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    tiny_model(sys.argv[1], sys.argv[2:])
