#!/bin/sh
# The trainer's command line. With RAGEN_RUN, `train` begins a run of that name the first time and continues it
# whenever the container starts again, with the options it is given and those settings that a run may change.
set -eu
run="runs/${RAGEN_RUN:-}"
if [ "${1:-}" != train ] || [ -z "${RAGEN_RUN:-}" ]; then
  exec node --import ./bin/needs-node.js trainer/main.ts "$@"
fi
if [ ! -e "$run/config.yaml" ]; then
  exec node --import ./bin/needs-node.js trainer/main.ts "$@" "run.name=$RAGEN_RUN"
fi
shift
for argument; do
  shift
  case $argument in
    -* | servers* | training.* | tracking.*) set -- "$@" "$argument" ;;
  esac
done
exec node --import ./bin/needs-node.js trainer/main.ts train --resume "$run" "$@"
