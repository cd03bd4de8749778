"""An agent loop for verl 0.9: every environment of a server as the user of a multi-turn rollout.

`agent_loops.yaml`, named by `actor_rollout_ref.rollout.agent.agent_loop_config_path`:

    - name: ragen
      _target_: verl_agent_loop.RagenAgentLoop
      env_id: Sokoban-v0
      env_config: {preset: simple}
      max_turns: 5

Rows of the data set carry `"agent_name": "ragen"`, `"extra_info": {"seed": 17}` and the prompt that
`first_prompt(env_id, seed, config)` writes. `<answer>Up || Left</answer>` takes several actions. The reward of an
episode is the sum of the environment's; those of each turn are in `turn_scores`.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import ragen_env
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput
from verl.utils.profiler import simple_timer

FORMAT = "Answer with <answer>your action</answer>; several are separated by ||."


def wrappers_of(max_actions: int = 5) -> list[dict[str, Any]]:
    """The server reads the actions out of the answer."""
    return [{"name": "action_text", "options": {"max_actions": max_actions, "think": False}}]


def first_prompt(env_id: str, seed: int, config: dict[str, Any] | None = None) -> list[dict[str, str]]:
    """The `prompt` of a row of the data set."""
    env = ragen_env.RagenEnv(env_id, config=config, wrappers=wrappers_of())
    try:
        observation, _info = env.reset(seed=seed)
        return [{"role": "user", "content": f"{env.description['instruction']}\n{FORMAT}\n\n{observation}"}]
    finally:
        env.close()


class RagenAgentLoop(AgentLoopBase):
    def __init__(
        self,
        *args: Any,
        env_id: str,
        env_config: dict[str, Any] | None = None,
        base_url: str | None = None,
        token: str | None = None,
        max_turns: int = 5,
        max_actions: int = 5,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._client = ragen_env.AsyncClient(base_url, token=token)
        self._env_id, self._env_config = env_id, dict(env_config or {})
        self._turns, self._actions = max_turns, max_actions
        self._length = self.rollout_config.response_length

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        messages = list(kwargs["raw_prompt"])
        seed = int(kwargs["extra_info"]["seed"])
        session = await self._client.create(
            self._env_id,
            config=self._env_config,
            wrappers=wrappers_of(self._actions),  # type: ignore[arg-type]
            seed=seed,
        )
        try:
            return await self._play(session["session_id"], messages, sampling_params)
        finally:
            await self._client.close_session(session["session_id"])

    async def _play(
        self, session: str, messages: list[dict[str, Any]], sampling_params: dict[str, Any]
    ) -> AgentLoopOutput:
        ids = await self.ct_build_initial_tokens(messages)
        mask: list[int] = []
        logprobs: list[float] = []
        scores: list[float] = []
        metrics: dict[str, Any] = {}
        request = uuid4().hex
        while True:
            with simple_timer("generate_sequences", metrics):
                output = await self.server_manager.generate(
                    request_id=request, prompt_ids=ids, sampling_params=sampling_params
                )
            known = output.log_probs or None
            merged, mask, aligned = await self.ct_merge_assistant_token(
                ids, output.token_ids, mask, logprobs if known else None, assistant_logprobs=known
            )
            ids, logprobs = merged.token_ids, aligned or []
            answer = self.tokenizer.decode(output.token_ids, skip_special_tokens=True)
            with simple_timer("tool_calls", metrics):
                reply = await self._client.step(session, answer)
            scores.append(float(reply["reward"]))
            over = reply["terminated"] or reply["truncated"] or len(scores) >= self._turns
            if over or len(mask) >= self._length:
                break
            before = [*messages, {"role": "assistant", "content": answer}]
            messages = [*before, {"role": "user", "content": str(reply["observation"])}]
            merged, more, aligned = await self.ct_merge_context_msg(before, messages, ids, mask, logprobs or None)
            if len(more) >= self._length:
                break
            ids, mask, logprobs = merged.token_ids, more, aligned or []
        start = len(ids) - len(mask)
        return AgentLoopOutput(
            prompt_ids=ids[:start],
            response_ids=ids[start:][: self._length],
            response_mask=mask[: self._length],
            response_logprobs=logprobs[: self._length] or None,
            reward_score=sum(scores),
            num_turns=2 * len(scores),
            metrics=metrics,
            extra_fields={**output.extra_fields, "turn_scores": scores, "tool_rewards": []},
        )
