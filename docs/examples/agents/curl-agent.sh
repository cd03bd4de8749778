#!/bin/sh
# Plays an environment with curl and jq: one question a step.
set -eu

post() { # url token body
  curl -sS --fail-with-body "$1" -H "authorization: Bearer $2" -H 'content-type: application/json' -d "$3"
}

messages=$(printf '%s' "$RAGEN_TASK" | jq '[{role: "user", content: .observation}]')
while :; do
  reply=$(post "$OPENAI_BASE_URL/chat/completions" "$OPENAI_API_KEY" \
    "$(jq -n --argjson messages "$messages" '{model: "policy", messages: $messages}')")
  action=$(printf '%s' "$reply" | jq '.choices[0].message.content')
  result=$(post "$RAGEN_SESSION_URL/step" "$RAGEN_SESSION_TOKEN" "{\"action\": $action}")
  if printf '%s' "$result" | jq -e '.terminated or .truncated' >/dev/null; then break; fi
  messages=$(jq -n --argjson messages "$messages" --argjson action "$action" --argjson result "$result" \
    '$messages + [{role: "assistant", content: $action}, {role: "user", content: $result.observation}]')
done
