/**
 * Writes the pages about environments, the figures, the keys of configs, and the settings of the server into their page: `npm run docs`. It first plays the
 * reference policies of environments that have not been measured; `--measure [ids…]` measures these again (all without
 * ids).
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { encodePng } from '../env-server/environments/core/drawing/png.ts';
import { createRegistry } from '../env-server/environments/registry.ts';
import { CONFIG_KEYS_PAGE, configKeysPage } from './generator/config-keys.ts';
import { PICTURES } from './generator/environment-page.ts';
import {
  environmentPages,
  environmentPictures,
  MEASURED_FILE,
  readMeasured,
} from './generator/environment-pages.ts';
import { animations, staticFigures } from './generator/figures.ts';
import { measure } from './generator/measure.ts';
import { SETTINGS_PAGE, withSettings } from './generator/settings-table.ts';
import { SHOWCASES, showcases } from './generator/showcases.ts';

const EPISODES = 500;
/** Environments where an episode of the best policy takes a second or more. */
const FEWER_EPISODES: { readonly [id: string]: number } = { 'Game2048-v0': 50 };
const ROOT = new URL('../', import.meta.url);

const [flag, ...ids] = process.argv.slice(2);
if (flag !== undefined && flag !== '--measure') {
  console.error(`unknown argument ${flag}; usage: npm run docs [-- --measure [ids…]]`);
  process.exit(1);
}
const registry = createRegistry();
for (const id of ids) registry.get(id);
let measured = readMeasured();
for (const environment of registry.list()) {
  const { id } = environment.spec;
  const wanted = flag !== undefined && (ids.length === 0 || ids.includes(id));
  if (measured[id] && !wanted) continue;
  measured = { ...measured, [id]: await measure(environment, FEWER_EPISODES[id] ?? EPISODES) };
  writeFileSync(MEASURED_FILE, `${JSON.stringify(measured, null, 2)}\n`);
  console.log(`measured ${id}`);
}
mkdirSync(new URL(`docs/environments/${PICTURES}`, ROOT), { recursive: true });
for (const [path, content] of await environmentPages(measured)) {
  writeFileSync(new URL(path, ROOT), content);
  console.log(`wrote ${path}`);
}
for (const [path, picture] of await environmentPictures()) {
  writeFileSync(new URL(path, ROOT), encodePng(picture));
  console.log(`wrote ${path}`);
}
mkdirSync(new URL('docs/pictures/environments', ROOT), { recursive: true });
for (const [path, figure] of [...staticFigures(), ...(await animations(registry.list()))]) {
  writeFileSync(new URL(path, ROOT), figure);
  console.log(`wrote ${path}`);
}
writeFileSync(new URL(SHOWCASES, ROOT), await showcases(registry.list(), measured));
console.log(`wrote ${SHOWCASES}`);
writeFileSync(new URL(CONFIG_KEYS_PAGE, ROOT), configKeysPage());
console.log(`wrote ${CONFIG_KEYS_PAGE}`);
writeFileSync(new URL(SETTINGS_PAGE, ROOT), withSettings(readFileSync(new URL(SETTINGS_PAGE, ROOT), 'utf8')));
console.log(`wrote ${SETTINGS_PAGE}`);
