"""A Tinker server of a few lines, as a second implementation of the wire and of the losses: the SDK's own messages, and a
bigram model in float64 with a low-rank adapter B, logits = base[previous] + A[previous] @ B. Usage: PORT-FILE FOLDER [mean] [vocabulary=N]"""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path

import numpy as np

# The package's own imports take seconds; its messages need none of them.
sys.path.insert(0, f"{find_spec('tinker').submodule_search_locations[0]}/proto")
import tinker_public_pb2 as pb

RANK = 4
VOCABULARY = int(next((a[11:] for a in sys.argv[3:] if a.startswith("vocabulary=")), 24))
FOLDER, MEAN = Path(sys.argv[2]), "mean" in sys.argv[3:]
random = np.random.default_rng(0)
BASE = random.normal(size=(VOCABULARY, VOCABULARY))
A = random.normal(size=(VOCABULARY, RANK))
lock = threading.Lock()
models, results, sent, samplers, log = {}, {}, {}, {}, []


class Refused(Exception):
    def __init__(self, status, detail):
        self.status, self.detail = status, detail


def log_probs(b, tokens):
    logits = BASE[tokens] + A[tokens] @ b
    logits = logits - logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def new_model(**state):
    zeros = lambda: np.zeros((RANK, VOCABULARY))
    return {"b": zeros(), "m": zeros(), "v": zeros(), "t": 0, "seq": 0, "grad": zeros(), "datums": 0, **state}


def numbers(tensor):
    return np.frombuffer(tensor.dense, {1: "<f4", 2: "<i8"}[tensor.dtype]).astype("f8" if tensor.dtype == 1 else "i8")


def token_loss(name, config, lp, inputs, weights):
    """Loss and its derivative by log p, per token."""
    if name == "cross_entropy":
        return -weights * lp, -weights
    q, advantages = inputs["logprobs"], inputs["advantages"]
    ratio = np.exp(lp - q)
    if name == "importance_sampling":
        return -ratio * advantages, -ratio * advantages
    low, high = config["clip_low_threshold"], config["clip_high_threshold"]
    clipped = np.clip(ratio, low, high)
    if name == "ppo":
        surrogate = np.minimum(ratio * advantages, clipped * advantages)
        return -surrogate, np.where(clipped * advantages < ratio * advantages, 0, -ratio * advantages)
    if name == "cispo":
        return -clipped * advantages * lp, -clipped * advantages
    raise Refused(400, f"loss_fn {name} is unknown")


def forward_backward(model, request):
    config = dict(request.loss_fn_config) | {k: v.number for k, v in request.loss_fn_config_v2.items()}
    out, total = [], 0.0
    for datum in request.data:
        tokens = np.concatenate([np.frombuffer(c.encoded_text.tokens, "<i4") for c in datum.model_input])
        inputs = {name: numbers(tensor) for name, tensor in datum.loss_fn_inputs.items()}
        targets = inputs["target_tokens"]
        for name, values in inputs.items():
            if len(values) != len(tokens):
                raise Refused(400, f"{name} has {len(values)} numbers for {len(tokens)} tokens")
        table = log_probs(model["b"], tokens)
        lp = table[np.arange(len(tokens)), targets]
        weights = inputs.get("weights", np.ones(len(tokens)))
        loss, slope = token_loss(request.loss_fn, config, lp, inputs, weights)
        if MEAN:
            slope = slope * (1 if request.loss_fn == "cross_entropy" else weights) / max(weights.sum(), 1e-9)
        if not request.forward_only:
            change = -np.exp(table) * slope[:, None]
            change[np.arange(len(tokens)), targets] += slope
            model["grad"] += A[tokens].T @ change
            model["datums"] += 1
        out.append(lp.astype("<f4"))
        total += loss.sum()
    ends = np.cumsum([0] + [lp.nbytes for lp in out]).astype("<i8")
    record = pb.ArrayRecord(type_tag="", num_datums=len(out))
    record.fields["logprobs"].CopyFrom(
        pb.BatchedTensor(data=b"".join(lp.tobytes() for lp in out), offsets=ends.tobytes(), dtype=1)
    )
    output = pb.ForwardBackwardOutput(loss_fn_output_type="ArrayRecord", loss_fn_outputs=[record])
    output.metrics["loss:sum"] = total
    return output.SerializeToString()


def optim_step(model, body):
    adam = body["adam_params"]
    grad = model["grad"] / max(model["datums"], 1) if MEAN else model["grad"]
    norm = float(np.sqrt((grad**2).sum()))
    if 0 < adam["grad_clip_norm"] < norm:
        grad = grad * adam["grad_clip_norm"] / (norm + 1e-6)
    model["t"] += 1
    model["last"] = grad
    model["m"] = adam["beta1"] * model["m"] + (1 - adam["beta1"]) * grad
    model["v"] = adam["beta2"] * model["v"] + (1 - adam["beta2"]) * grad**2
    first = model["m"] / (1 - adam["beta1"] ** model["t"])
    second = model["v"] / (1 - adam["beta2"] ** model["t"])
    model["b"] = model["b"] * (1 - adam["learning_rate"] * adam["weight_decay"])
    model["b"] = model["b"] - adam["learning_rate"] * first / (np.sqrt(second) + adam["eps"])
    model["grad"], model["datums"] = np.zeros_like(model["grad"]), 0
    return {"metrics": {"grad_norm": norm}}


def sample(body):
    params, b = body["sampling_params"], samplers[body["sampling_session_id"]]
    prompt = [token for chunk in body["prompt"]["chunks"] for token in chunk["tokens"]]
    random, tokens, lps = np.random.default_rng(params.get("seed")), [], []
    stop = params.get("stop") or []
    while len(tokens) < params["max_tokens"] and not (tokens and tokens[-1] in stop):
        lp = log_probs(b, np.array([(prompt + tokens)[-1]]))[0]
        token = int(random.choice(VOCABULARY, p=np.exp(lp) / np.exp(lp).sum())) if params["temperature"] else int(lp.argmax())
        tokens.append(token)
        lps.append(lp[token])
    stopped = tokens[-1] in stop
    sequence = pb.SampledSequence(
        stop_reason=0 if stopped else 1,
        tokens=np.array(tokens, "<i4").tobytes(),
        logprobs=np.array(lps, "<f4").tobytes(),
    )
    response = pb.SampleResponse(sequences=[sequence])
    if body.get("prompt_logprobs"):
        table = log_probs(b, np.array(prompt[:-1], "i8"))
        own = table[np.arange(len(prompt) - 1), prompt[1:]]
        response.prompt_logprobs = np.concatenate([[np.nan], own]).astype("<f4").tobytes()
    return response.SerializeToString()


def file_of(path):
    return FOLDER / (path.removeprefix("tinker://").replace("/", "_").replace(":", "_") + ".npz")


def execute(route, body):
    """The result of an operation on a model."""
    model = models[body.model_id if route == "forward_backward" else body["model_id"]]
    if route == "forward_backward":
        return forward_backward(model, body)
    if route == "optim_step":
        return optim_step(model, body)
    if route == "save_weights":
        path = f"tinker://{body['model_id']}/weights/{body['path']}"
        np.savez(file_of(path), **{name: model[name] for name in ("b", "m", "v", "t")})
        return {"path": path}
    if route == "save_weights_for_sampler":
        name = f"{body['model_id'].split(':')[0]}:sample:{body['sampling_session_seq_id']}"
        samplers[name] = model["b"].copy()
        return {"sampling_session_id": name}
    raise Refused(404, f"no route {route}")


def submit(route, body, key):
    """Runs an operation once; the same content again gets the same id."""
    content = body.SerializeToString(deterministic=True) if route == "forward_backward" else json.dumps(body, sort_keys=True)
    if key in sent:
        if sent[key][1] != content:
            raise Refused(400, f"{key} was sent with other content")
        return {"request_id": sent[key][0]}
    if route in ("create_model", "load_weights"):
        name = f"{body['session_id']}:train:{body['model_seq_id']}"
        saved = np.load(file_of(body["path"])) if route == "load_weights" else {}
        state = {n: saved[n].copy() for n in ("b", "m", "v") if n in saved and (n == "b" or body["optimizer"])}
        models[name] = new_model(**state, **({"t": int(saved["t"])} if len(state) > 1 else {}))
        result = {"model_id": name, "path": body.get("path")}
    elif route == "asample":
        result = sample(body)
    elif route == "unload_model":
        result = {"model_id": body["model_id"]}
        log.append(["open gradients", models.pop(body["model_id"])["datums"]])
    else:
        number = key[2]
        model = models.get(key[1])
        if model is None:
            raise Refused(404, f"model {key[1]} is not here")
        if number != model["seq"] + 1:
            raise Refused(400, f"seq_id {number} came after {model['seq']}")
        try:
            result = execute(route, body)
        except Refused:
            raise
        model["seq"] = number
    log.append([route, key[-1]])
    sent[key] = (str(len(sent)), content)
    results[sent[key][0]] = result
    return {"request_id": sent[key][0], "sample_sequence_ids": ["0"]}


def reply(route, body):
    if route == "create_session":
        return {"session_id": f"S{np.random.default_rng().integers(1 << 40)}"}
    if route == "create_sampling_session":
        name = f"{body['session_id']}:base:{body['sampling_session_seq_id']}"
        samplers[name] = np.zeros((RANK, VOCABULARY))
        return {"sampling_session_id": name}
    if route == "retrieve_future":
        if body["request_id"] not in results:
            raise Refused(404, "no such future")
        return results[body["request_id"]]
    if route == "forward_backward":
        request = pb.ForwardBackwardRequest.FromString(body)
        return submit(route, request, ("step", request.model_id, request.seq_id))
    if route in ("create_model", "load_weights"):
        return submit(route, body, ("model", body["session_id"], body["model_seq_id"]))
    if route == "asample":
        return submit(route, body, ("sample", body["sampling_session_id"], body["seq_id"]))
    if route == "unload_model":
        return submit(route, body, ("unload", body["model_id"], 0))
    if route in ("session_heartbeat", "client/config") or route.startswith("sessions/"):
        log.append([route.split("/")[0], 0])
        return {}
    return submit(route, body, ("step", body["model_id"], body["seq_id"]))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def handle_one(self, answer):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        try:
            with lock:
                result, status = answer(body), 200
        except Refused as refused:
            result, status = {"detail": refused.detail}, refused.status
        content = result if isinstance(result, bytes) else json.dumps(result).encode()
        self.send_response(status)
        self.send_header("content-type", "application/x-protobuf" if isinstance(result, bytes) else "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_POST(self):
        route = self.path.removeprefix("/api/v1/")
        self.handle_one(lambda body: reply(route, body if route == "forward_backward" else json.loads(body)))

    def do_GET(self):
        state = {n: {"steps": m["t"], "b": m["b"].tolist(), "last": m.get("last", m["b"]).tolist()} for n, m in models.items()}
        supported = {"supported_models": [{"model_name": "bigram", "max_context_length": 200}]}
        self.handle_one(lambda _: {"models": state, "log": log, "base": BASE.tolist(), "a": A.tolist()} if self.path == "/state" else supported)

    def do_DELETE(self):
        _, run, _, name = self.path.removeprefix("/api/v1/").split("/", 3)
        file_of(f"tinker://{run.replace('%3A', ':')}/{name}").unlink(missing_ok=True)
        self.handle_one(lambda _: {})

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
Path(sys.argv[1]).write_text(str(server.server_address[1]))
server.serve_forever()
