import { readFileSync } from 'node:fs';
import t from 'tap';
import { ADVANTAGES } from './advantages/registry.ts';
import { FILTER_STRATEGIES } from './filters/registry.ts';
import { FILTER_FILLS, FILTER_SCORES } from './filters/settings.ts';
import { POLICY_LOSSES } from './losses/registry.ts';
import { AGGREGATIONS, KL_ESTIMATORS, OFF_POLICY_KINDS } from './losses/settings.ts';
import { REWARD_GROUPINGS, REWARD_METHODS } from './rewards/normalization.ts';

const page = ['algorithms', 'losses']
  .map(name => readFileSync(new URL(`../../docs/reference/${name}.md`, import.meta.url), 'utf8'))
  .join('\n');

t.test('every advantage and every policy loss has a section in docs/reference', async t => {
  for (const name of [...ADVANTAGES, ...POLICY_LOSSES]) t.match(page, `\n### ${name}\n`, name);
});

t.test('every choice of the other settings is explained there', async t => {
  const choices = [
    AGGREGATIONS,
    KL_ESTIMATORS,
    FILTER_SCORES,
    FILTER_STRATEGIES,
    FILTER_FILLS,
    REWARD_GROUPINGS,
    REWARD_METHODS,
    OFF_POLICY_KINDS,
  ].flat();
  for (const name of choices) t.match(page, `\`${name}\``, name);
});
