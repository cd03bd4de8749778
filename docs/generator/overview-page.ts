import { RULES } from '../../env-server/environments/core/checker/report.ts';
import type { AnyEnvironment } from '../../env-server/environments/core/environment.ts';
import { WRAPPERS } from '../../env-server/wrappers/wrap.ts';
import { GENERATED, pageName } from './environment-page.ts';
import { percent, schemaTable, table } from './markdown.ts';
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
  const wrappers = [...WRAPPERS.values()].map(
    ({ name, title, optionsSchema }) => `### \`${name}\`\n\n${title}\n\n${schemaTable(optionsSchema)}`,
  );
  const rules = table(
    ['rule', 'what it demands'],
    Object.entries(RULES).map(([rule, title]) => [`\`${rule}\``, title]),
  );
  return `${GENERATED}
# Environments

${table(['id', 'name', 'tags', 'random', 'best'], rows)}

\`random\` and \`best\` are the success of the reference policies under the default configuration; each environment's page
says over how many episodes, and how to measure again.

## Settings

A session names an environment and may give it a \`config\`, reset \`options\`, a \`seed\` and \`wrappers\`:

\`\`\`sh
curl -s localhost:8080/v1/sessions -H 'content-type: application/json' -d '{
  "env_id": "FrozenLake-v0",
  "config": {"preset": "larger", "success_rate": 0.5},
  "options": {"start": [0, 0]},
  "wrappers": [{"name": "time_limit", "options": {"max_steps": 20}}],
  "seed": 7
}'
\`\`\`

- The effective configuration is the defaults, over them the preset that \`config.preset\` names, over them the other keys.
- Options pin the start: a level is data. What they leave open is drawn from the seed; the same seed gives the same
  episode on every machine.
- Environments that generate their levels have a configuration key \`split\`: every level belongs to train, validation or
  test by a hash of what makes it the same (its \`level_id\`: for Sokoban walls, targets and boxes up to rotation
  and mirror, wherever the player stands), so that the parts never overlap.
- Data files (\`config.data\`) are JSON Lines, JSON or Parquet; where \`RAGEN_DATA_DIR\` is set they must lie under it, and a server with tokens reads none without it.

## Wrappers

Applied in the order given, the first one innermost. Their state is part of the session's: snapshots and clones go through
them.

${wrappers.join('\n\n')}

## Checking an environment

\`npm run check-env -- <id>\` plays an environment with sensible and senseless actions and reports, rule by rule, whether
it keeps what the server promises its clients. Without an id it checks all.

${rules}

The tests play the same rules with random and malformed configurations, options and actions, a few dozen tries for each
environment. The long mode takes as many as are asked for, says how far it is, and goes through all environments or the
one that is named:

\`\`\`sh
RAGEN_FUZZ_TRIES=100000 RAGEN_FUZZ_ENVIRONMENT=Sokoban TAP_TIMEOUT=36000 npx node env-server/environments/fuzz.test.ts
\`\`\`

\`RAGEN_FUZZ_SEED\` varies the tries. A hundred thousand take from a quarter of a minute (Bandit) to some fifteen minutes
(FrozenLake, the cube, Sokoban), and an hour for DeepCoder, which runs several programs for each.
`;
}
