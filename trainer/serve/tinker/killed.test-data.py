"""Trains at the address in argv[1] with the Python package tinker while the server there is killed; prints what it saw as JSON.
Reads a line from standard input each time that the server was killed or started."""

import json
import os
import sys
import time

os.environ["TINKER_TELEMETRY"] = "0"

import tinker  # noqa: E402
from tinker import types  # noqa: E402

url, base = sys.argv[1:3]


def say(**line):
    print(json.dumps(line), flush=True)


def ready(client):
    """A client: SDKs from 0.38 give a future of it."""
    return client.result() if hasattr(client, "result") else client


data = [
    types.Datum(
        model_input=types.ModelInput.from_ints(ids[:-1]),
        loss_fn_inputs={"target_tokens": ids[1:], "weights": [1.0] * (len(ids) - 1)},
    )
    for ids in ([5, 9, 17, 23, 4], [8, 12, 31])
]


def step(client):
    gradient = client.forward_backward(data, "cross_entropy")
    done = client.optim_step(types.AdamParams(learning_rate=1e-2))
    loss = gradient.result(timeout=90).metrics["loss:sum"]
    done.result(timeout=90)
    return loss


service = tinker.ServiceClient(base_url=url, api_key="tml-test")
training = ready(service.create_lora_training_client(base_model=base, rank=4, seed=1))
losses = [step(training) for _ in range(3)]
path = training.save_state("first").result().path
losses += [step(training) for _ in range(2)]
# Many seconds of work, in ten requests, which the server begins and does not end.
pending = training.forward_backward(data * 5000, "cross_entropy")
time.sleep(0.5)
say(saved=path)
sys.stdin.readline()

began = time.monotonic()
for name, work in {"pending": lambda: pending.result(timeout=90), "next": lambda: step(training)}.items():
    try:
        work()
        say(name=name, error=None)
    except Exception as error:
        say(name=name, error=f"{type(error).__name__}: {error}", seconds=time.monotonic() - began)
sys.stdin.readline()

service = tinker.ServiceClient(base_url=url, api_key="tml-test")
resumed = ready(service.create_training_client_from_state_with_optimizer(path))
say(before=losses[3:], after=[step(resumed) for _ in range(2)])
