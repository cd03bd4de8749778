import type { AnyEnvironment } from '../../env-server/environments/core/environment.ts';
import { WRAPPERS } from '../../env-server/wrappers/wrap.ts';
import { GENERATED, pageName } from './environment-page.ts';
import { percent, schemaLines, table } from './markdown.ts';
import type { EnvironmentMeasurement } from './measure.ts';

/** `docs/environments.md`: all environments, all wrappers, and how an environment is checked. */
export function overviewPage(
  environments: readonly AnyEnvironment[],
  measured: { readonly [id: string]: EnvironmentMeasurement },
): string {
  const rows = environments.map(environment => {
    const { id, title, tags } = environment.spec;
    const { policies } = measured[id];
    const others = Object.entries(policies).filter(([name]) => name !== 'random');
    return [
      `[\`${id}\`](environments/${pageName(environment)})`,
      title,
      tags.join(', '),
      policies.random ? percent(policies.random.success) : '–',
      others.length > 0 ? percent(Math.max(...others.map(([, policy]) => policy.success))) : '–',
    ];
  });
  const wrappers = [...WRAPPERS.values()]
    .map(({ name, title, optionsSchema }) =>
      [`\`${name}\`: ${title}`, ...schemaLines(optionsSchema)].join(' ').replaceAll('<', '\\<'),
    )
    .map(line => `- ${line}`)
    .join('\n');
  return `${GENERATED}
# Environments

_Reference._ \`random\` and \`best\` are the success of the reference policies under the default configuration.

${table(['id', 'name', 'tags', 'random', 'best'], rows)}

## Settings

\`\`\`sh
curl -s localhost:8080/v1/sessions -H 'content-type: application/json' -d '{
  "env_id": "FrozenLake-v0",
  "config": {"preset": "larger", "success_rate": 0.5},
  "options": {"start": [0, 0]},
  "wrappers": [{"name": "time_limit", "options": {"max_steps": 20}}],
  "seed": 7
}'
\`\`\`

- \`config\`: keys of the page's table. \`preset\` names a set of them; other keys win over it.
- \`config.split\` (\`any\`, \`train\`, \`validation\`, \`test\`; default \`any\`), in environments with levels: 8 of 10
  levels belong to train, the rest to validation and test, by a hash of the level up to symmetry (\`level_id\`).
  Presets of the same names choose it.
- \`config.max_steps\`: the steps before truncation.
- \`config.data\`: JSON Lines, JSON or Parquet on the server's disk. With \`RAGEN_DATA_DIR\` it must lie in that folder; a
  server with tokens reads no file without it.
- \`options\` pin the start: a level is data. The seed draws everything else, the same on every machine.
- \`info\` of each step has \`success\`, \`action_is_valid\` and \`action_is_effective\`, and in some
  environments \`rewards\`: named parts that [trainers can weigh](reference/algorithms.md#rewards).

The observations on the pages are the first ones of seed 0; forms that only combine others are left out.

## Wrappers

The first in the list is the innermost. Snapshots and clones include their state.

${wrappers}

## Checking an environment

\`npm run check-env -- [id]\` plays an environment, or all, with valid and invalid actions, and
reports by rule, such as \`determinism\`, \`immutability\`, \`action_space\`, \`reward_range\` and \`snapshot\`.

A longer form plays the same rules with random and malformed settings (\`RAGEN_FUZZ_SEED\` varies them):

\`\`\`sh
RAGEN_FUZZ_TRIES=100000 RAGEN_FUZZ_ENVIRONMENT=Sokoban TAP_TIMEOUT=36000 npx node env-server/environments/fuzz.test.ts
\`\`\`
`;
}
