import { readFile } from 'node:fs/promises';
import t from 'tap';
import { Compile } from 'typebox/schema';
import { generate, ROOT } from './generate.ts';

const files = await generate();

t.test('the committed files are what the code generates; if not, run `npm run openapi`', async t => {
  for (const [path, content] of files) {
    t.equal(await readFile(new URL(path, ROOT), 'utf8'), content, path);
  }
});

t.test('every reference of the document leads somewhere', async t => {
  const document = JSON.parse(files.get('openapi/openapi.json')!);
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

t.test('the document names its servers, and is made of what generators of clients understand', async t => {
  const text = files.get('openapi/openapi.json')!;
  t.notMatch(text, /unevaluatedProperties/);
  const { servers, components } = JSON.parse(text);
  t.equal(servers[0].url, '/');
  const check = (name: string, value: unknown) =>
    Compile({ $ref: `#/components/schemas/${name}`, components }).Check(value);
  const step = { op: 'step', session_id: 's', action: 1 };
  for (const [name, value] of [
    ['BatchItem', step],
    ['BatchBody', { items: [step], wait: 1 }],
    ['Frame', { id: 1, ...step, request_key: 'k', traceparent: '00' }],
    ['Frame', { id: 'a', op: 'batch', items: [step], request_key: 'k' }],
    ['Frame', { id: 1, op: 'ping' }],
  ] as const) {
    t.ok(check(name, value), `${name} ${JSON.stringify(value)}`);
    t.notOk(check(name, { ...value, color: 'red' }), `${name} with an unknown key`);
  }
  t.notOk(check('BatchItem', { ...step, id: 1 }));
  t.notOk(check('BatchBody', { items: [{ ...step, color: 'red' }] }));
  t.notOk(check('Frame', step), 'a frame without its id');
  t.notOk(check('Frame', { id: 1, op: 'stp' }));
});
