import { readFile } from 'node:fs/promises';
import t from 'tap';
import { generate, ROOT } from './generate.ts';

t.test('the committed files are what the code generates; if not, run `npm run openapi`', async t => {
  for (const [path, content] of await generate()) {
    t.equal(await readFile(new URL(path, ROOT), 'utf8'), content, path);
  }
});

t.test('every reference of the document leads somewhere', async t => {
  const document = JSON.parse((await generate()).get('openapi/openapi.json')!);
  const references = new Set<string>();
  JSON.stringify(document, (key, value) => {
    if (key === '$ref') references.add(value);
    return value;
  });
  t.ok(references.size > 10);
  for (const reference of references) {
    t.ok(document.components.schemas[reference.replace('#/components/schemas/', '')], reference);
  }
});
