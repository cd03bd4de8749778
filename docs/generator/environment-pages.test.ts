import { readdirSync, readFileSync } from 'node:fs';
import { PNG } from 'pngjs';
import t from 'tap';
import { createRegistry } from '../../env-server/environments/registry.ts';
import { environmentPages, environmentPictures, readMeasured } from './environment-pages.ts';
import { wrapped } from './markdown.ts';
import { measure } from './measure.ts';

const ROOT = new URL('../../', import.meta.url);
const measured = readMeasured();

t.test('every environment and policy has been measured', async t => {
  for (const { spec, references = {} } of createRegistry().list()) {
    const found = Object.keys(measured[spec.id]?.policies ?? {}).sort();
    t.same(found, Object.keys(references).sort(), `npm run docs -- --measure ${spec.id}`);
  }
});

t.test('the pages follow the source; `npm run docs` writes them', async t => {
  const pages = await environmentPages(measured);
  for (const [path, content] of pages) t.equal(readFileSync(new URL(path, ROOT), 'utf8'), content, path);
  const pictures = await environmentPictures();
  for (const [path, { width, height, data }] of pictures) {
    const file = PNG.sync.read(readFileSync(new URL(path, ROOT)));
    t.same([file.width, file.height], [width, height], path);
    t.ok(file.data.equals(data), path);
  }
  const files = readdirSync(new URL('docs/environments', ROOT), { recursive: true })
    .map(name => `docs/environments/${name}`)
    .filter(path => path !== 'docs/environments/pictures');
  const made = [...pages.keys(), ...pictures.keys()].filter(path => path.startsWith('docs/environments/'));
  t.same(files.sort(), made.sort());
});

t.test('measuring again finds the same', async t => {
  for (const id of ['Bandit-v0', 'FrozenLake-v0']) {
    const environment = createRegistry().get(id);
    t.same(await measure(environment, 40), await measure(environment, 40), id);
  }
});

t.test('paragraphs, lists and quotes are wrapped; what follows them, code and links stay whole', async t => {
  const word = 'x'.repeat(58);
  const wide = `${word} ${word} ${word}`;
  const link = `[${word}](a b)`;
  t.equal(wrapped(`- ${wide}`), `- ${word} ${word}\n  ${word}`);
  t.equal(wrapped(`> ${wide}`), `> ${word} ${word}\n> ${word}`);
  t.equal(wrapped(`${word} ${word} ${link}.`), `${word} ${word}\n${link}.`);
  t.equal(wrapped(`${word} ${word} - \`a b\``), `${word} ${word} -\n\`a b\``, 'no line begins a list');
  for (const whole of [`| ${wide} |`, `# ${wide}`, `\`\`\`\n${wide}\n\`\`\``]) t.equal(wrapped(whole), whole);
});
