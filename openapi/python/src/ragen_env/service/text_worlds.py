"""Families that play in words: TextArena, reasoning-gym, ScienceWorld, TextWorld and Jericho."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

from .families import MissingPart, number_of, one_of


class ReasoningProblem:
    """A problem of reasoning-gym: one question, one answer, scored by the package from 0 to 1."""

    max_steps = 1
    reward_range = (0.0, 1.0)
    instruction = "Answer the question with the answer alone."

    def __init__(self, name: str, **config: Any):
        from reasoning_gym.factory import DATASETS

        one_of("reasoning-gym", name, DATASETS)
        self.world_name = name
        self._name, self._config = name, {"size": 1, **config}
        answers = (str(self._dataset(seed)[0]["answer"]) for seed in range(16))
        self.example_actions = list(dict.fromkeys(answers))

    def _dataset(self, seed: int | None) -> Any:
        import reasoning_gym

        return reasoning_gym.create_dataset(self._name, seed=number_of(seed), **self._config)

    def reset(self, seed: int | None = None) -> Any:
        self._problems = self._dataset(seed)
        self._problem = self._problems[0]
        return str(self._problem["question"]), {}

    def step(self, answer: str) -> Any:
        score = float(self._problems.score_answer(answer.strip(), self._problem))
        text = "Right." if score >= 1 else f"Not right. The answer is {self._problem['answer']}."
        return text, score, True, False, {"success": score >= 1}


class TextArenaGame:
    """A game of TextArena for one player."""

    def __init__(self, name: str, **kwargs: Any):
        import textarena
        from textarena.envs.registration import ENV_REGISTRY

        one_of("textarena", name, ENV_REGISTRY)
        self.world_name = name
        self.instruction = f"Play {name.split('-')[0]}. Write your move in square brackets."
        self.example_actions = ["[1]", "[up]"]
        raw = f"{name}-raw"
        try:
            self._env = textarena.make(raw if raw in ENV_REGISTRY else name, **kwargs)
        except LookupError as error:
            raise self._missing(error) from None
        self.max_steps = 200

    def _missing(self, error: LookupError) -> MissingPart:
        """NLTK's data are not in a package; its message names what is missing."""
        import re

        named = re.search(r"Resource\s+(?:\x1b\[\d+m)?'?(\w+)", str(error))
        if named is None:
            raise error
        return MissingPart(f"{self.world_name} needs data of NLTK: python -m nltk.downloader {named[1]}")

    def reset(self, seed: int | None = None) -> Any:
        try:
            self._env.reset(num_players=1, seed=number_of(seed))
        except LookupError as error:
            raise self._missing(error) from None
        except AssertionError as error:
            if "players" in str(error):
                raise MissingPart(f"{self.world_name} is a game for more players ({error}); one player is served") from None
            raise
        return self._seen(), {}

    def step(self, action: str) -> Any:
        done, info = self._env.step(action if "[" in action else f"[{action}]")
        if not done:
            return self._seen(), 0.0, False, False, {}
        rewards, why = self._env.close()
        reward = float(rewards.get(0, 0.0))
        reason = (why.get(0, {}) if isinstance(why, dict) else {}) or info
        return str(reason.get("reason", "The game is over.")), reward, True, False, {"success": reward >= 1}

    def _seen(self) -> str:
        _, observation = self._env.get_observation()
        if isinstance(observation, str):
            return observation
        return "\n".join(str(message) for source, message, *_ in observation if source != 0)


_JVM = threading.Lock()
_GATEWAY: list[Any] = []


def _science_world(limit: int) -> Any:
    """A simulator in the one Java machine of this process, which the package would start for each environment."""
    import shutil

    from scienceworld import ScienceWorldEnv

    if shutil.which("java") is None:
        raise MissingPart("scienceworld needs Java 8 or newer: apt-get install default-jre-headless")
    with _JVM:
        if _GATEWAY and _GATEWAY[0]._gateway.java_process.poll() is not None:
            _GATEWAY.clear()  # it ended, with the episodes in it: the next ones get another
        if not _GATEWAY:
            _GATEWAY.append(ScienceWorldEnv("", envStepLimit=limit))
        first = _GATEWAY[0]

        class Simulator(ScienceWorldEnv):  # type: ignore[misc]
            def __init__(self) -> None:
                self.__dict__.update(first.__dict__)
                self.server = first._gateway.jvm.scienceworld.runtime.pythonapi.PythonInterface()
                self.envStepLimit = limit

            def close(self) -> None:
                """The machine ends with the process."""

        return Simulator()


class ScienceTask:
    """A task of ScienceWorld: an experiment in a house of many rooms, in words. The score goes from 0 to 100."""

    def __init__(self, name: str, simplifications: str = "easy", variation: int | None = None, max_steps: int = 100):
        self._env = _science_world(max_steps)
        one_of("scienceworld", name, self._env.get_task_names())
        self.world_name, self.max_steps = name, max_steps
        self._simplifications, self._variation = simplifications, variation
        self._variations = int(self._env.get_max_variations(name))
        self.instruction = "Carry out the task of the experiment. Each action is a command in words."
        self.example_actions = ["look around", "inventory"]

    def reset(self) -> Any:
        """Takes no seed: the simulator has its own random numbers, so equal commands end differently."""
        number = number_of(self._variation, self._variations)
        self._env.load(self.world_name, number, self._simplifications)
        observation, info = self._env.reset()
        return f"{info['taskDesc']}\n\n{observation}", {"valid_actions": list(info["valid"])}

    def step(self, action: str) -> Any:
        observation, reward, done, info = self._env.step(action)
        return observation, reward / 100, bool(done), False, {
            "valid_actions": list(info["valid"]),
            "score": info["score"],
            "success": info["score"] >= 100,
        }


_BUILDING = threading.Lock()
#: Games of this process by name and settings; the folders are removed when it ends.
_FOLDERS: dict[str, Any] = {}


def _generated(challenge: str, number: int, settings: dict[str, Any], folder: Path) -> str:
    """The file of a game, generated and compiled at its first use (about 2 s), one at a time."""
    import textworld
    from textworld.challenges import CHALLENGES

    path = folder / f"{number}.z8"
    with _BUILDING:
        if not path.exists():
            options = textworld.GameOptions()
            options.seeds = number
            options.path, options.file_ext = str(path), ".z8"
            if challenge == "custom":
                for key, value in {"nb_rooms": 2, "nb_objects": 3, "quest_length": 2, **settings}.items():
                    setattr(options, key, value)
                game = textworld.generator.make_game(options)
            else:
                _, make, _ = CHALLENGES[challenge]
                game = make(settings, options)
            textworld.generator.compile_game(game, options)
    return str(path)


_DEFAULTS: dict[str, dict[str, Any]] = {
    "tw-simple": {"rewards": "dense", "goal": "detailed", "test": False},
    "tw-coin_collector": {"level": 5},
    "tw-treasure_hunter": {"level": 5},
    "tw-cooking": {
        "recipe": 1, "take": 1, "go": 1, "open": False, "cook": False, "cut": False, "drop": False,
        "recipe_seed": 1, "split": "train",
    },
}


class TextWorldGame:
    """A quest of TextWorld: walk, take, open and use things by commands in words. The reward is the score won."""

    instruction = "Reach the goal of the quest. Each action is a command in words."
    example_actions = ["look", "inventory"]

    def __init__(self, name: str, games: int = 100, max_steps: int = 50, **settings: Any):
        import tempfile

        from textworld.challenges import CHALLENGES

        self.world_name, self.max_steps = Path(name).stem, max_steps
        self._file = os.path.abspath(name) if name.endswith((".json", ".z8", ".ulx")) else None
        if self._file is not None and not os.path.exists(self._file):
            raise MissingPart(f"there is no game {self._file}: tw-make custom --output {name}")
        if self._file is None:
            one_of("textworld", name, ["custom", *CHALLENGES])
        self._games, self._settings = games, {**_DEFAULTS.get(name, {}), **settings}
        key = f"{name}-{sorted(self._settings.items())}"
        with _BUILDING:
            made = _FOLDERS.get(key) or _FOLDERS.setdefault(key, tempfile.TemporaryDirectory(prefix="ragen-textworld-"))
        self._folder = Path(made.name)
        self._name = name
        self._env: Any = None

    def reset(self, seed: int | None = None) -> Any:
        import textworld

        infos = textworld.EnvInfos(
            admissible_commands=True, objective=True, won=True, lost=True, score=True, max_score=True,
        )
        path = self._file or _generated(self._name, number_of(seed, self._games), self._settings, self._folder)
        self.close()
        self._env = textworld.start(path, infos)
        state = self._env.reset()
        self._score = 0
        return f"{state.objective or ''}\n\n{_plain(state.feedback)}".strip(), {"valid_actions": _sorted(state)}

    def step(self, command: str) -> Any:
        state, score, done = self._env.step(command)
        reward, self._score = score - self._score, score
        info = {"success": bool(state.won)}
        return _plain(state.feedback), float(reward) / max(1, state.max_score or 1), bool(done), False, {
            **info, "valid_actions": _sorted(state),
        }

    def close(self) -> None:
        if self._env is not None:
            self._env.close()


def _sorted(state: Any) -> list[str]:
    return sorted(set(state.admissible_commands or []))


def _plain(text: str) -> str:
    """The text without the title's drawing, the prompt and the line of the status at its right."""
    lines = [line.rstrip() for line in text.split("\n") if "$$" not in line and not line.startswith(">")]
    return "\n".join(lines).strip() or text.strip()


class InteractiveFiction:
    """A game of interactive fiction, played by Jericho. The reward is the score won, as a part of the highest."""

    instruction = "Play the game. Each action is a command in words."
    example_actions = ["look", "inventory", "north", "take all"]

    def __init__(self, name: str, max_steps: int = 100):
        import jericho

        if not os.path.isfile(name):
            raise MissingPart(
                f"there is no game {os.path.abspath(name)}: games are not in the package. Jericho's suite is "
                "https://github.com/BYU-PCCL/z-machine-games; then: ragen-env serve jericho:PATH/zork1.z5"
            )
        self.world_name, self.max_steps = Path(name).stem, max_steps
        self._env = jericho.FrotzEnv(os.path.abspath(name))

    def reset(self, seed: int | None = None) -> Any:
        self._env.seed(1 + number_of(seed, 2**15))
        observation, _ = self._env.reset()
        return observation.strip(), {}

    def step(self, command: str) -> Any:
        observation, reward, done, info = self._env.step(command)
        most = max(1, self._env.get_max_score())
        return observation.strip(), reward / most, bool(done), False, {
            "score": info["score"], "moves": info["moves"], "success": bool(self._env.victory()),
        }

    def close(self) -> None:
        self._env.close()
