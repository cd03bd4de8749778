"""What ``ragen-env serve`` derives from an environment: the forms of observations and actions, and the definition."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from ragen_env.service.definition import Overrides, derive
from ragen_env.service.episodes import Call, Episodes, detail_of
from ragen_env.service.forms import InvalidAction, NoForm, drawing_of, json_of, space_actions, text_of
from ragen_env.service.worlds import UnusableWorld, World, WorldFault, WorldSource


@pytest.mark.parametrize(
    "value,text",
    [
        ("as it is", "as it is"),
        (np.int64(3), "3"),
        (2.0 / 3, "0.6667"),
        (np.array([3, 1, 4]), "3 1 4"),
        (np.array([[1.5, 2], [3, float("inf")]]), "1.5 2\n3 inf"),
        (np.arange(8).reshape(2, 2, 2), "0,1 2,3\n4,5 6,7"),
        (np.zeros((2, 1, 1, 2), int), "0,0\n\n0,0"),
        ({"at": np.array([1, 2]), "map": np.eye(2, dtype=int), "say": "hi"}, "at: 1 2\nmap:\n  1 0\n  0 1\nsay: hi"),
        ((1, True, None), "1 true none"),
        (["a", {"b": 1}], "0: a\n1: b: 1"),
    ],
)
def test_observations_have_a_text_form(value: Any, text: str) -> None:
    assert text_of(value) == text


def test_values_without_a_form_are_refused() -> None:
    with pytest.raises(NoForm, match="a value of type object has no text form"):
        text_of(object())
    with pytest.raises(NoForm, match="a value of type object has no form in JSON"):
        json_of({"a": object()})
    assert json_of([float("nan"), np.float32("inf"), np.array([1.5, np.nan])]) == [None, None, [1.5, None]]


def test_drawings_keep_what_a_terminal_highlights() -> None:
    assert drawing_of("  (Right)\nS\x1b[41mF\x1b[0mF\n") == "  (Right)\nS[F]F"


@pytest.mark.parametrize(
    "space,kind,good,bad",
    [
        (spaces.Discrete(3, start=-1), "Discrete", ["-1", "1", 0], ["2", 7, "left", None, True]),
        (spaces.Text(5, charset="ab"), "Text", ["ab"], [3, None]),
        (spaces.MultiDiscrete([3, 2]), "Json", [[2, 1]], [[2, 2], [1], "up", None, [[1]]]),
        (spaces.MultiBinary(2), "Json", [[0, 1]], [[0, 2], [0]]),
        (spaces.Box(-1, 1, (2,)), "Json", [[0.5, -1]], [[2, 0], [0], [None, 0], "x"]),
        (
            spaces.Dict({"x": spaces.Discrete(2), "name": spaces.Text(3)}),
            "Json",
            [{"x": 1, "name": "abc"}],
            [{"x": 2, "name": "abc"}, {"x": 1}, []],
        ),
        (spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 1, (1,))]), "Json", [[1, [0.5]]], [[2, [0.5]], [1]]),
    ],
)
def test_actions_have_a_written_form(space: spaces.Space[Any], kind: str, good: list[Any], bad: list[Any]) -> None:
    form = space_actions(space)
    assert form.space["type"] == kind
    for action in [*form.examples, *good]:
        if kind != "Text":
            assert space.contains(form.member(action)), action
    for action in bad:
        with pytest.raises(InvalidAction):
            form.member(action)


@pytest.mark.parametrize(
    "space,schema",
    [
        (spaces.Box(-2, 2, (1,)), {"minItems": 1, "maxItems": 1, "items": {"type": "number", "minimum": -2, "maximum": 2}}),
        (spaces.Box(0.1, np.inf, ()), {"type": "number", "minimum": 0.1}),
        (spaces.Box(np.iinfo(np.int64).min, 7, (), np.int64), {"type": "integer", "maximum": 7}),
        (
            spaces.Tuple([spaces.MultiDiscrete([3, 2]), spaces.Box(np.array([0, -1], np.float32), 1)]),
            {
                "prefixItems": [
                    {"prefixItems": [{"minimum": 0, "maximum": 2}, {"minimum": 0, "maximum": 1}]},
                    {"prefixItems": [{"minimum": 0, "maximum": 1}, {"minimum": -1, "maximum": 1}]},
                ]
            },
        ),
        (spaces.MultiBinary([1, 2]), {"items": {"items": {"type": "integer", "minimum": 0, "maximum": 1}, "maxItems": 2}}),
    ],
)
def test_a_schema_has_the_bounds_of_each_number(space: spaces.Space[Any], schema: dict[str, Any]) -> None:
    def within(wanted: Any, given: Any) -> bool:
        if isinstance(wanted, dict):
            return all(name in given and within(part, given[name]) for name, part in wanted.items())
        if isinstance(wanted, list):
            return len(wanted) == len(given) and all(map(within, wanted, given))
        return bool(wanted == given)

    form = space_actions(space)
    assert within(schema, form.space["schema"]), form.space["schema"]
    assert form.listed == isinstance(space, spaces.MultiBinary), "only where the list is complete"


def test_an_action_that_is_out_of_bounds_is_refused_with_them() -> None:
    with pytest.raises(InvalidAction, match=r"\[2.5\] is not a member of Box\(-2.0, 2.0, \(1,\), float32\)"):
        space_actions(spaces.Box(-2, 2, (1,))).member([2.5])
    with pytest.raises(InvalidAction, match="0.5 is not a member of .*: whole numbers of int64"):
        space_actions(spaces.Box(0, 2, (), np.int64)).member(0.5)
    widest = space_actions(spaces.Box(-np.arange(1.0, 301), 1, dtype=np.float64))
    assert widest.space["schema"]["items"] == {"type": "number", "minimum": -300, "maximum": 1}


def test_environments_of_one_space_share_its_form_which_takes_long_to_sample() -> None:
    source = WorldSource(Typing, example_actions=None)
    first, second = source.make(), source.make()
    assert first.env is not second.env and first.actions is second.actions
    assert space_actions(spaces.Discrete(2), ["a", "b"]).examples != space_actions(spaces.Discrete(2), ["b", "a"]).examples


class Steering(gymnasium.Env[Any, Any]):
    """Keep the wheel near 0."""

    observation_space = spaces.Box(-9, 9, (1,))
    action_space = spaces.Dict({"turn": spaces.Box(-1, 1, (1,)), "gear": spaces.Discrete(2)})

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(1), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        return action["turn"], 0.0, False, False, {}


def test_actions_with_many_numbers_are_a_schema_and_no_list() -> None:
    derived = derive(WorldSource(Steering), 10, Overrides())
    assert "actions" not in derived.definition and derived.notes == []
    assert derived.definition["action_space"]["schema"]["properties"]["gear"]["maximum"] == 1


def test_examples_have_four_significant_digits_where_the_space_has_such_numbers() -> None:
    examples: Any = space_actions(spaces.Dict({"bid": spaces.Box(90, 110, ()), "x": spaces.Box(-0.001, 0.001, (2,))})).examples
    assert all(value == float(f"{value:.4g}") for example in examples for value in [example["bid"], *example["x"]])
    assert len({example["bid"] for example in examples}) > 30
    narrow = spaces.Box(0.123456, 0.123457, ())
    assert all(narrow.contains(np.array(example, np.float32)) for example in space_actions(narrow).examples)


def test_spaces_without_a_form_are_refused() -> None:
    with pytest.raises(NoForm, match="have no written form"):
        space_actions(spaces.Graph(spaces.Discrete(2), None))


class Corridor(gymnasium.Env[Any, Any]):
    """Walk to the end.

    ## Details

    Nobody's prompt needs this.
    """

    action_space = spaces.Discrete(2)
    observation_space = spaces.Dict({"at": spaces.Discrete(4)})
    action_names = ["Back", "On"]
    max_episode_steps = 7

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.at = int(self.np_random.integers(2))
        return {"at": self.at}, self._info()

    def step(self, action: Any) -> Any:
        self.at = max(0, self.at + (1 if action else -1))
        return {"at": self.at}, float(self.at == 3), self.at == 3, False, self._info()

    def _info(self) -> dict[str, Any]:
        return {"action_mask": np.array([self.at > 0, True], np.int8)}


def definition(make: Callable[..., Any], overrides: Overrides = Overrides()) -> dict[str, Any]:
    return derive(WorldSource(make), 10, overrides).definition


def test_a_definition_is_derived() -> None:
    assert definition(Corridor) == {
        "kind": "remote",
        "protocol": "webhook",
        "title": "Corridor",
        "instruction": "Walk to the end.",
        "description": "Walk to the end.\n\n## Details\n\nNobody's prompt needs this.",
        "max_episode_steps": 7,
        "action_space": {"type": "Discrete", "names": ["Back", "On"]},
        "example_action": "Back",
        "observation_max_length": 10_000,
        "timeout_ms": 12_000,
        "connections": 128,
        "capabilities": {"seed": True, "valid_actions": True},
    }
    defined = definition(Corridor, Overrides("A corridor", "Continue.", 3, False))
    assert (defined["title"], defined["instruction"], defined["max_episode_steps"]) == ("A corridor", "Continue.", 3)
    assert defined["capabilities"]["seed"] is False


def test_legal_actions_come_from_the_mask_and_success_from_the_reward() -> None:
    world = WorldSource(Corridor).make()
    reply = world.reset(1)
    assert reply["valid_actions"] == (["On"] if reply["observation"]["structured"]["at"] == 0 else ["Back", "On"])
    while not reply.get("terminated"):
        reply = world.step("On")
    assert reply["info"] == {"success": True} and reply["observation"]["text"] == "at: 3"


class Forgetful(Corridor):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        observation, info = super().reset()
        self.at = int(np.random.default_rng().integers(1000))
        return {"at": self.at}, info


def test_seeds_are_off_where_an_environment_does_not_keep_them() -> None:
    derived = derive(WorldSource(Forgetful), 10, Overrides())
    assert derived.definition["capabilities"]["seed"] is False
    assert any("The same seed gave two different episodes" in note for note in derived.notes)


class Plain:
    def reset(self) -> str:
        return "begin"

    def step(self, action: str) -> dict[str, Any]:
        return {"observation": {"text": action, "structured": {"n": np.int64(1)}}, "reward": 1, "terminated": True}


class Picking(Corridor):
    action_space = spaces.MultiDiscrete([3, 2])  # type: ignore[assignment]

    def step(self, action: Any) -> Any:
        return super().step(action[0] > 0)

    def _info(self) -> dict[str, Any]:
        return {}


def test_example_actions_of_a_space_are_given_for_random_play() -> None:
    derived = definition(Picking)
    assert sorted(derived["actions"]) == [[a, b] for a in range(3) for b in range(2)]
    assert derived["example_action"] in derived["actions"]


class Typing(Corridor):
    action_space = spaces.Text(9, charset="abc ")  # type: ignore[assignment]

    def _info(self) -> dict[str, Any]:
        return {}

    def step(self, action: Any) -> Any:
        return super().step(len(action) > 4)


def test_a_text_space_lists_no_actions_unless_it_has_examples() -> None:
    derived = derive(WorldSource(Typing), 1, Overrides())
    assert derived.definition["action_space"] == {"type": "Text", "max_length": 9}
    assert "actions" not in derived.definition
    assert Typing.action_space.contains(derived.definition["example_action"])
    assert any(note.startswith("Actions are any text") for note in derived.notes)
    named = derive(WorldSource(Typing, example_actions=["a cab", "abba"]), 1, Overrides())
    assert named.definition["actions"] == ["a cab", "abba"]
    assert not any(note.startswith("Actions are any text") for note in named.notes)


def test_plain_classes_name_their_actions() -> None:
    with pytest.raises(UnusableWorld, match='give the class `actions = \\["Higher", "Lower"\\]`'):
        definition(Plain)
    source = WorldSource(Plain, example_actions=["guess 5"])
    assert derive(source, 1, Overrides()).definition["action_space"] == {
        "type": "Text",
        "max_length": 2000,
        "format": "a text, e.g. guess 5",
    }
    assert source.make().step("guess 7") == {
        "observation": {"text": "guess 7", "structured": {"n": 1}},
        "reward": 1.0,
        "terminated": True,
        "truncated": False,
        "info": {"success": True},
    }
    with pytest.raises(UnusableWorld, match="takes no seed"):
        derive(source, 1, Overrides(seed=True))
    with pytest.raises(UnusableWorld, match="an action occurs twice"):
        World(Plain(), WorldSource(Plain, actions=["Up", "up"]))


class Pixels(Corridor):
    def _info(self) -> dict[str, Any]:
        return {}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros((210, 160, 3), np.uint8), {}


def test_observations_too_large_for_a_text_are_refused_at_the_start() -> None:
    with pytest.raises(UnusableWorld, match="an observation of Pixels takes .* wrap the environment"):
        definition(Pixels)


class Waits:
    """Answer after a wait."""

    actions = ["on", "off"]

    async def reset(self, seed: int) -> str:
        self.loop = asyncio.get_running_loop()
        return f"seed {seed}"

    async def step(self, action: str) -> tuple[str, float, bool]:
        await asyncio.sleep(0)
        return action, float(asyncio.get_running_loop() is self.loop), True

    async def valid_actions(self) -> list[str]:
        return ["off"]

    async def close(self) -> None:
        self.closed = True


def test_async_methods_run_in_the_loop_of_their_environment() -> None:
    world = WorldSource(Waits).make()
    assert world.reset(3) == {"observation": "seed 3", "valid_actions": ["off"], "info": {}}
    assert world.step("off") == {
        **{"observation": "off", "reward": 1, "terminated": True, "truncated": False, "valid_actions": ["off"]},
        "info": {"success": True},
    }
    world.close()
    assert world.env.closed and world.env.loop.is_closed()


class Shy(Corridor):
    """Its service is away at every third reset, and always after ``broken`` is set."""

    resets = 0
    closed = 0
    broken = False

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        Shy.resets += 1
        if Shy.broken or Shy.resets % 3 == 0:
            raise ConnectionError("the service is away")
        return super().reset(seed=seed)

    def close(self) -> None:
        Shy.closed += 1


def test_an_environment_that_fails_to_begin_at_times_is_begun_again() -> None:
    Shy.resets = Shy.closed = 0
    assert derive(WorldSource(Shy), 10, Overrides()).definition["capabilities"]["seed"] is True
    assert (Shy.resets, Shy.closed) == (11, 4), "eight episodes; three environments failed, and the last is closed"
    episodes = Episodes(WorldSource(Shy))
    for number in range(6):
        assert episodes.carry_out(Call("reset", f"session {number}", number)).status == 200
    Shy.resets, Shy.broken = 0, True
    try:
        refused = episodes.carry_out(Call("reset", "another", 1))
        assert refused.status == 422 and "the service is away" in detail_of(refused)
        assert Shy.resets == 3
        assert episodes.carry_out(Call("step", "another", "On")).status == 410
        with pytest.raises(WorldFault, match="the service is away"):
            derive(WorldSource(Shy), 10, Overrides())
    finally:
        Shy.broken = False
