"""Writes test/golden/logits_processors.json: logits and log-probabilities after transformers' own processors.

    python trainer/generation/logits-processor.test-data.py > test/golden/logits_processors.json

Presence and frequency penalties are those of vLLM (vllm/model_executor/layers/utils.py, apply_penalties), which
transformers does not have: logits -= frequency * counts; logits -= presence * (counts > 0), over the response alone.
"""

import json

import torch
from transformers.generation.logits_process import (
    LogitsProcessorList,
    MinPLogitsWarper,
    NoBadWordsLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

VOCABULARY = 24
EOS = 0
CASES = [
    {"repetition_penalty": 1.3},
    {"repetition_penalty": 0.7},
    {"presence_penalty": 0.8, "frequency_penalty": 0.4},
    {"presence_penalty": -1.5, "frequency_penalty": 1.1},
    {"logit_bias": {"3": 2.5, "7": -20, "11": 0.5}},
    {"bad_words": [[5], [9, 4], [4, 9, 4], [1, 2, 3, 6]]},
    {"min_p": 0.2},
    {"temperature": 0.6, "top_k": 9, "top_p": 0.8, "min_p": 0.1},
    {
        "temperature": 1.4,
        "top_k": 12,
        "top_p": 0.9,
        "min_p": 0.05,
        "repetition_penalty": 1.2,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.3,
        "logit_bias": {"2": 1.5, "9": -3},
        "bad_words": [[6], [9, 4]],
    },
]
PROMPT = [1, 2, 3, 8, 9, 9, 12]
RESPONSE = [4, 9, 4, 9]


def processed(logits, settings):
    ids = torch.tensor([PROMPT + RESPONSE])
    scores = logits.clone()[None]
    if bias := settings.get("logit_bias"):
        scores = SequenceBiasLogitsProcessor({(int(i),): float(b) for i, b in bias.items()})(ids, scores)
    if penalty := settings.get("repetition_penalty"):
        scores = RepetitionPenaltyLogitsProcessor(penalty)(ids, scores)
    counts = torch.bincount(torch.tensor(RESPONSE), minlength=VOCABULARY)[None]
    scores = scores - settings.get("frequency_penalty", 0) * counts
    scores = scores - settings.get("presence_penalty", 0) * (counts > 0)
    if words := settings.get("bad_words"):
        scores = NoBadWordsLogitsProcessor(words, eos_token_id=EOS)(ids, scores)
    return ids, scores


def warped(ids, scores, settings):
    warpers = LogitsProcessorList()
    if temperature := settings.get("temperature"):
        warpers.append(TemperatureLogitsWarper(temperature))
    if top_k := settings.get("top_k"):
        warpers.append(TopKLogitsWarper(top_k))
    if top_p := settings.get("top_p"):
        warpers.append(TopPLogitsWarper(top_p))
    if min_p := settings.get("min_p"):
        warpers.append(MinPLogitsWarper(min_p))
    return torch.log_softmax(warpers(ids, scores), dim=-1)


def finite(row):
    return [None if value == float("-inf") else value for value in row.tolist()]


torch.manual_seed(7)
cases = []
for settings in CASES:
    logits = 2 * torch.randn(VOCABULARY)
    ids, scores = processed(logits, settings)
    cases.append(
        {
            "settings": settings,
            "logits": logits.tolist(),
            "processed": finite(scores[0]),
            "log_probs": finite(warped(ids, scores, settings)[0]),
        }
    )
print(json.dumps({"prompt": PROMPT, "response": RESPONSE, "cases": cases}))
