import { readFileSync } from 'node:fs';
import t from 'tap';
import { createApp } from '../../env-server/app.ts';
import { DECLARATIONS, flagOf, variableOf } from '../../env-server/config/settings.ts';
import { SETTINGS_PAGE, withSettings } from './settings-table.ts';

const page = readFileSync(new URL(`../../${SETTINGS_PAGE}`, import.meta.url), 'utf8');

t.test('the page lists every setting as it is; npm run docs writes it', async t => {
  t.equal(withSettings(page), page);
  for (const name of Object.keys(DECLARATIONS)) {
    t.ok(page.includes(`| \`--${flagOf(name)}\` | \`${variableOf(name)}\` |`), name);
  }
  t.throws(() => withSettings('# Nothing'), /lacks the lines/);
});

t.test('the page on monitoring names every metric of the server', async t => {
  const page = readFileSync(new URL('../how-to/monitor-the-server.md', import.meta.url), 'utf8');
  const { server } = await createApp({ logLevel: 'silent' });
  t.teardown(() => server.close());
  const { body } = await server.inject('/metrics');
  const metrics = [...body.matchAll(/^# TYPE (ragen_\w+)/gm)].map(([, name]) => name);
  t.ok(metrics.length > 5);
  for (const name of metrics) t.ok(page.includes(`\`${name}\``), name);
});
