import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { loadRunSettings } from '../trainer/config/load.ts';

const ROOT = fileURLToPath(new URL('../', import.meta.url));
const COMMAND = /^npm run trainer -- (?:train|sft) (\S+\.yaml) (.*)$/gm;
/** A word of a shell line, quoted or not. */
const WORD = /'([^']*)'|"([^"]*)"|(\S+)/g;
/** Its commands take a recipe that the reader writes first. */
const OTHER = 'add-a-part.md';
const PAGES = [
  'README.md',
  ...['how-to', 'tutorial'].flatMap(folder =>
    readdirSync(join(ROOT, 'docs', folder)).map(name => join('docs', folder, name)),
  ),
].filter(path => path.endsWith('.md') && !path.endsWith(OTHER));

/** Configs of the repository that the page trains with, and what it sets on the command line. */
function commandsOf(page: string): { readonly config: string; readonly overrides: readonly string[] }[] {
  return [...page.replaceAll(/\\\n\s*/g, '').matchAll(COMMAND)].flatMap(([, config, rest]) => {
    const words = [...rest.replace(/ #.*$/, '').matchAll(WORD)].map(
      ([, one, two, plain]) => one ?? two ?? plain,
    );
    const overrides = words.filter(word => /^[\w.]+=/.test(word));
    return existsSync(join(ROOT, config)) ? [{ config, overrides }] : [];
  });
}

t.test('the training commands of the pages have settings that go together', async t => {
  let count = 0;
  for (const path of PAGES) {
    for (const { config, overrides } of commandsOf(readFileSync(join(ROOT, path), 'utf8'))) {
      count++;
      t.doesNotThrow(
        () => loadRunSettings(join(ROOT, config), overrides),
        `${path}: ${config} ${overrides.join(' ')}`,
      );
    }
  }
  t.ok(count >= 20, `${count} commands`);
});
