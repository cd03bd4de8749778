import { readdirSync, readFileSync } from 'node:fs';
import t from 'tap';

const here = new URL('./', import.meta.url);
const read = (path: string) => readFileSync(new URL(path, here), 'utf8');
const yamlFiles = (folder: string) =>
  readdirSync(new URL(folder, here)).filter(name => name.endsWith('.yaml'));

t.test('docs/reference/configs.md names every recipe, and no other', async t => {
  const section = /## Recipes\n\n(.*?)`recipe: grpo`/s.exec(read('../docs/reference/configs.md'))![1];
  const named = [...section.matchAll(/`([a-z_]+)`/g)].map(match => match[1]);
  t.same(
    named.sort(),
    yamlFiles('recipes')
      .map(name => name.replace('.yaml', ''))
      .sort(),
  );
});

t.test('README.md here lists every run, and no other', async t => {
  const rows = read('README.md')
    .split('\n')
    .filter(line => line.startsWith('| `'));
  const listed = rows.flatMap(row => [...row.split('|')[1].matchAll(/`([^`]+)`/g)].map(match => match[1]));
  const shared = ['algorithm.yaml', 'base.yaml', 'tags.yaml', 'text.yaml'];
  t.same(
    listed.sort(),
    yamlFiles('.')
      .filter(name => !shared.includes(name))
      .sort(),
  );
});
