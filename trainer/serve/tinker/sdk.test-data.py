"""Trains and samples at the address in argv[1] with the Python package tinker, and prints the outcome as JSON."""

import json
import os
import sys

os.environ["TINKER_TELEMETRY"] = "0"

import tinker  # noqa: E402
import torch  # noqa: E402
from tinker import types  # noqa: E402

service = tinker.ServiceClient(base_url=sys.argv[1], api_key="tml-test")
base = sys.argv[2]
PROMPT = [5, 9, 17]
found = {}


def datum(ids, **inputs):
    inputs = inputs or {"weights": [1.0] * (len(ids) - 1)}
    return types.Datum(
        model_input=types.ModelInput.from_ints(ids[:-1]),
        loss_fn_inputs={"target_tokens": ids[1:], **inputs},
    )


def ready(client):
    """A client: SDKs from 0.38 give a future of it."""
    return client.result() if hasattr(client, "result") else client


def per_token(results):
    return [result["logprobs"].tolist() for result in results.loss_fn_outputs]


training = ready(service.create_lora_training_client(base_model=base, rank=4, seed=1))
info = training.get_info()
found["tokenizer"] = info.model_data.tokenizer_id
data = [datum([5, 9, 17, 23, 4]), datum([8, 12, 31])]
adam = types.AdamParams(learning_rate=1e-2)

losses = []
for _ in range(5):
    result = training.forward_backward(data, "cross_entropy")
    step = training.optim_step(adam)
    losses.append(result.result().metrics["loss:sum"])
    found["norm"] = step.result().metrics["optim/grad_norm"]
found["losses"] = losses

forward = training.forward(data, "cross_entropy").result()
found["forward"] = forward.metrics["loss:sum"]
for loss, config in {
    "importance_sampling": None,
    "ppo": {"clip_low_threshold": 0.9, "clip_high_threshold": 1.1},
    "cispo": {"clip_low_threshold": 0.9, "clip_high_threshold": 1.1},
    "dro": {"beta": 0.1},
}.items():
    logprobs = per_token(forward)
    given = [
        datum(ids, logprobs=own, advantages=[1.0] * len(own))
        for ids, own in zip([[5, 9, 17, 23, 4], [8, 12, 31]], logprobs)
    ]
    found[loss] = training.forward_backward(given, loss, config).result().metrics["loss:sum"]
training.optim_step(types.AdamParams(learning_rate=0.0)).result()


def squares(_, logprobs):
    loss = sum((own**2).sum() for own in logprobs)
    return loss, {"squares": float(loss)}


custom = training.forward_backward_custom(data, squares).result()
found["custom"] = [custom.metrics["squares"], sum(x**2 for own in per_token(forward) for x in own)]
training.optim_step(types.AdamParams(learning_rate=0.0)).result()

sampler = ready(training.save_weights_and_get_sampling_client())
params = types.SamplingParams(max_tokens=6, temperature=1.0, seed=3, stop=[])
sampled = sampler.sample(
    prompt=types.ModelInput.from_ints(PROMPT),
    num_samples=3,
    sampling_params=params,
    include_prompt_logprobs=True,
    topk_prompt_logprobs=2,
).result()
whole = [PROMPT + list(sequence.tokens) for sequence in sampled.sequences]
scored = per_token(training.forward([datum(ids) for ids in whole], "cross_entropy").result())
found["sampled"] = max(
    abs(a - b)
    for sequence, own in zip(sampled.sequences, scored)
    for a, b in zip(sequence.logprobs, own[len(PROMPT) - 1 :])
)
found["prompt"] = [sampled.prompt_logprobs[0], max(abs(a - b) for a, b in zip(sampled.prompt_logprobs[1:], scored[0]))]
found["topk"] = len(sampled.topk_prompt_logprobs[1])
computed = sampler.compute_logprobs(types.ModelInput.from_ints(PROMPT)).result()
found["computed"] = max(abs(a - b) for a, b in zip(computed[1:], scored[0]))

path = training.save_state("one").result().path
named = training.save_weights_for_sampler("one").result().path
before = training.forward(data, "cross_entropy").result().metrics["loss:sum"]
for name, create in {
    "resumed": service.create_training_client_from_state_with_optimizer,
    "weights": service.create_training_client_from_state,
}.items():
    resumed = ready(create(path))
    found[name] = [before, resumed.forward(data, "cross_entropy").result().metrics["loss:sum"]]
loaded = ready(service.create_sampling_client(model_path=named))
again = loaded.sample(prompt=types.ModelInput.from_ints(PROMPT), num_samples=3, sampling_params=params).result()
found["same"] = [list(s.tokens) for s in again.sequences] == [list(s.tokens) for s in sampled.sequences]

refused = ready(service.create_lora_training_client(base_model=base, rank=4))
try:
    refused.forward_backward(data, "gspo").result()
except Exception as error:
    found["refused"] = str(error)
if hasattr(service, "close"):
    service.close(status="success")
print(json.dumps(found))
