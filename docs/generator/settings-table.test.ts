import { readdirSync, readFileSync } from 'node:fs';
import t from 'tap';
import { createApp } from '../../env-server/app.ts';
import { DECLARATIONS, flagOf, variableOf } from '../../env-server/config/settings.ts';
import { CONFIG_KEYS_PAGE, configKeysPage } from './config-keys.ts';
import { SETTINGS_PAGE, withSettings } from './settings-table.ts';

const page = readFileSync(new URL(`../../${SETTINGS_PAGE}`, import.meta.url), 'utf8');

t.test('the page lists every setting as it is; npm run docs writes it', async t => {
  t.equal(withSettings(page), page);
  for (const name of Object.keys(DECLARATIONS)) {
    t.ok(page.includes(`\n- \`--${flagOf(name)}\``), name);
    t.equal(variableOf(name), `RAGEN_${flagOf(name).toUpperCase().replaceAll('-', '_')}`, 'as the page says');
  }
  t.throws(() => withSettings('# Nothing'), /lacks the lines/);
});

t.test(
  'the page of a config lists every key with its default and its meaning; npm run docs writes it',
  async t => {
    const page = readFileSync(new URL(`../../${CONFIG_KEYS_PAGE}`, import.meta.url), 'utf8');
    t.equal(configKeysPage(), page);
    for (const line of [
      '- `seed` (integer ≥0; `0`): Seed of everything random',
      '- `policy.lora.rank` (integer ≥1; `16`): Rank of the adapters.',
      '- `tags.<name>.max_turn` (integer ≥1; `5`): Maximum turns of an episode.',
      '- `rollout.temperature` (≥0; `1`): Divides the logits; 0 is greedy.',
      '- `schedules.clip_high` (keys as in `schedules.entropy_coefficient`): Schedule of `loss.clip_high`.',
    ]) {
      t.ok(page.includes(line), line);
    }
  },
);

t.test('settings that the messages about combinations name exist', async t => {
  const page = configKeysPage();
  const folder = new URL('../../trainer/config/', import.meta.url);
  let count = 0;
  for (const file of readdirSync(folder).filter(name => name.endsWith('combinations.ts'))) {
    const source = readFileSync(new URL(file, folder), 'utf8').replaceAll('.length', '');
    // A setting in a text follows a space or a quote.
    for (const [, key] of source.matchAll(
      /[ '`]((?:policy|rollout|algorithm|loss|training)(?:\.[a-z_]+){1,3})(?=[ :,;=}'`])/g,
    )) {
      t.ok(page.includes(`\n- \`${key}\``), `${file}: ${key}`);
      count++;
    }
  }
  t.ok(count > 50, `${count} settings`);
});

t.test('reference/server-metrics.md names every metric of the server', async t => {
  const page = readFileSync(new URL('../reference/server-metrics.md', import.meta.url), 'utf8');
  const { server } = await createApp({ logLevel: 'silent' });
  t.teardown(() => server.close());
  const { body } = await server.inject('/metrics');
  const metrics = [...body.matchAll(/^# TYPE (ragen_\w+)/gm)].map(([, name]) => name);
  t.ok(metrics.length > 5);
  for (const name of metrics) t.ok(page.includes(`\`${name}\``), name);
});
