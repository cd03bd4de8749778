#!/bin/sh
# Plays an environment with curl and jq: one question a step.
set -eu

post() { # url token; body on standard input
  curl -sS --fail-with-body "$1" -H "authorization: Bearer $2" -H 'content-type: application/json' -d @-
}

asked=$(printf '%s' "$RAGEN_TASK" | jq -c '{model: "policy", messages: [{role: "user", content: .observation}]}')
while :; do
  said=$(printf '%s' "$asked" | post "$OPENAI_BASE_URL/chat/completions" "$OPENAI_API_KEY" |
    jq -c '{action: .choices[0].message.content}')
  seen=$(printf '%s' "$said" | post "$RAGEN_SESSION_URL/step" "$RAGEN_SESSION_TOKEN")
  asked=$(printf '%s\n%s\n%s' "$asked" "$said" "$seen" | jq -cs '
    . as [$asked, $said, $seen] | if $seen.terminated or $seen.truncated then empty else
      $asked | .messages += [{role: "assistant", content: $said.action}, {role: "user", content: $seen.observation}]
    end')
  if [ -z "$asked" ]; then break; fi
done
