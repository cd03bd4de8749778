#!/bin/sh
# The trainer's command line. With RAGEN_RUN, `train` begins a run of that name the first time and resumes it whenever
# the container starts again, with the same options and those settings that may change when a run resumes.
set -eu
run="runs/${RAGEN_RUN:-}"
if [ "${1:-}" != train ] || [ -z "${RAGEN_RUN:-}" ]; then
  exec node --import ./bin/needs-node.js trainer/main.ts "$@"
fi
if [ ! -e "$run/config.yaml" ]; then
  exec node --import ./bin/needs-node.js trainer/main.ts "$@" "run.name=$RAGEN_RUN"
fi
shift
value=
for argument; do
  shift
  case $value$argument in
    --log-level) set -- "$@" "$argument"; value='value ' ;;
    'value '* | -* | servers[.=]* | generation[.=]* | training[.=]* | tracking[.=]* | diagnostics[.=]*)
      set -- "$@" "$argument"; value= ;;
  esac
done
exec node --import ./bin/needs-node.js trainer/main.ts train --resume "$run" "$@"
