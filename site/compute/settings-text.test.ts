import { readdirSync, readFileSync } from 'node:fs';
import t from 'tap';
import { parse, stringify } from 'yaml';
import { flatSettings, flattened } from './settings-text.ts';

const byParser = (text: string) => Object.fromEntries(flattened(parse(text, { maxAliasCount: 0 })));

t.test('settings are read as the general parser reads them, or left to it', async t => {
  const texts = [
    stringify({
      seed: 3,
      policy: { init: 'scratch', precision: 'float32', hidden: { sizes: [64, 128], act: 'gelu' } },
      optimizer: { learning_rate: 1e-3, eps: 1e-8, betas: [0.9, 0.999], clip: null, on: true, off: false },
      rollout: { think: false, stop: [], more: {}, text: '', number: '12', yes: 'yes', path: './a b' },
      train_tags: ['Lake', 'Sokoban'],
      servers: [{ url: 'http://x', token: 'secret' }],
      tags: { Lake: { env_id: 'a', config: { p: 1 } } },
    }),
    'a:\n- 1\n- x\nb:\n  c: -0.5\n',
    'a: true\nb: True\n',
    'a: .inf\n',
    'a: 0x1f\n',
    'a: +5\n',
    'a: 1_000\n',
    'a: "x\\ny"\n',
    "a: 'it''s'\n",
    'a: |\n  block\n',
    'a: {b: 1}\n',
    'a: [1, 2]\n',
    'a: b # comment\n',
    'a: &x 1\nb: *x\n',
    'a: x: y\n',
    'a: one\n  two\n',
    'a: 4-bit\n',
    'a: ~\n',
    '# only a comment\n',
    'a:\n  - b: 1\n    c: 2\n',
    'a:\nb: 1\n',
    '"a b": 1\n',
  ];
  let read = 0;
  for (const text of texts) {
    const settings = flatSettings(text);
    if (!settings) continue;
    read++;
    t.same(Object.fromEntries(settings), byParser(text), text);
  }
  t.ok(flatSettings(texts[0]), 'what the trainer writes is read here');
  t.ok(read >= 4, String(read));
  t.notMatch(JSON.stringify([...flatSettings(texts[0])!]), /secret|env_id/);
});

t.test('the configs of this repository, written as run folders have them', async t => {
  const folder = new URL('../../configs/', import.meta.url);
  for (const name of readdirSync(folder).filter(name => name.endsWith('.yaml'))) {
    const text = stringify(parse(readFileSync(new URL(name, folder), 'utf8')));
    const settings = flatSettings(text);
    if (settings) t.same(Object.fromEntries(settings), byParser(text), name);
  }
});
