"""The command line: ``ragen-env serve my_module:MyEnv --register http://127.0.0.1:8080``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

_EPILOG = """examples:
  ragen-env serve my_module:MyEnv --register http://127.0.0.1:8080
  ragen-env serve FrozenLake-v1 --kwargs '{"render_mode": "ansi"}' --register http://127.0.0.1:8080
  ragen-env serve minigrid:MiniGrid-DoorKey-5x5-v0 --workers 2
  ragen-env serve reasoning_gym:syllogism --actions Yes,No
  ragen-env serve textworld:tw-simple --timeout 60
"""


def parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    top = argparse.ArgumentParser(prog="ragen-env", description="Serves Python environments to ragen.")
    commands = top.add_subparsers(dest="command", required=True)
    serve = commands.add_parser(
        "serve",
        help="serve an environment over HTTP",
        description="Serves an environment over HTTP, and registers it at an environment server.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = serve.add_argument
    add("target", help="module:Class, file.py:Class, a function that makes one, an id of Gymnasium, or package:name")
    add("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    add("--port", type=int, default=9001, help="port to listen on, 0 for a free one (default: %(default)s)")
    add("--workers", type=int, default=0, metavar="N", help="processes that play; 0: a thread for each episode")
    add("--kwargs", type=_object, metavar="JSON", help="arguments of the class, function or gymnasium.make")
    add("--actions", type=_names, metavar="A,B", help="names of the actions, if the environment has none")
    add("--example-actions", type=_names, metavar="A,B", help="example actions, if the environment takes any text")
    add("--register", metavar="URL", help="environment server to register at")
    add("--id", dest="env_id", help="id there (default: me/<Name>-v0)")
    add("--url", help="address of this service as that server reaches it (default: its own)")
    add("--token", help="token of the environment server (default: RAGEN_TOKEN)")
    add("--replace", action="store_true", help="replace an environment of that id")
    add("--title", help="title of the environment (default: its name)")
    add("--instruction", help="what players read (default: the first section of the docstring)")
    add("--max-steps", type=int, metavar="N", help="maximum steps of an episode (default: the environment's, else 100)")
    add("--no-seed", dest="seed", action="store_const", const=False, help="a seed does not repeat an episode")
    add("--timeout", dest="timeout_s", type=float, default=10.0, metavar="S", help="longest reset or step (default: 10 s)")
    add("--idle", dest="idle_s", type=float, default=3600.0, metavar="S", help="end of unused sessions (default: 3600 s)")
    add("--max-sessions", type=int, default=2048, metavar="N", help="sessions at a time (default: %(default)s)")
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command. Returns the exit code: 0, or 1 where it could not be done."""
    options = vars(parser().parse_args(argv))
    options.pop("command")
    try:
        from .service import ServiceError, serve
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn"):
            raise
        print("ragen-env serve needs more packages: pip install 'ragen-env[serve]'", file=sys.stderr)
        return 1
    try:
        serve(options.pop("target"), **options)
    except ServiceError as error:
        print(f"ragen-env: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    return 0


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError('must be an object such as {"size": 5}')
    return value


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


if __name__ == "__main__":
    sys.exit(main())
