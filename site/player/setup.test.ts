import t from 'tap';
import { RequestFailed } from '../components/request.ts';
import { beginSetup, reduceSetup, setupOf, shownText } from './setup.ts';
import type { Environment } from './wire.ts';

const environment = {
  env_id: 'Lake-v0',
  config: { size: 4, slippery: true, split: 'train' },
  config_schema: {
    properties: {
      size: { type: 'integer' },
      slippery: { type: 'boolean' },
      split: { anyOf: [{ const: 'train' }, { const: 'test' }] },
      layout: { type: 'array' },
    },
  },
} as unknown as Environment;
const begin = (request: object = {}) => beginSetup(environment, { envId: 'Lake-v0', ...request });
const refusal = (errors: object[]) =>
  new RequestFailed({ title: '', detail: '', status: 422, errors } as never);

t.test('a setup fills the form, and is read back unchanged', t => {
  const config = { preset: 'large', size: 6, slippery: false, split: 'test', layout: [[0]], unknown: 1 };
  const state = begin({ config, seed: 7, wrappers: [{ name: 'time_limit' }] });
  t.match(state, { preset: 'large', seed: '7', isSeedEdited: false });
  t.same(setupOf(state), {
    config: { preset: 'large', size: 6, slippery: false, split: 'test', layout: [[0]] },
    wrappers: [{ name: 'time_limit' }],
    options: {},
    format: 'text',
  });
  t.equal(shownText(begin(), 'size'), '4', 'fields that nobody changed show what holds');
  t.end();
});

t.test('an emptied field is the default; a half-written one is named and kept', t => {
  const emptied = reduceSetup(begin(), { type: 'written', name: 'size', text: '' });
  t.same(setupOf(emptied).config, {});
  t.equal(shownText(emptied, 'size'), '');
  const half = reduceSetup(begin(), { type: 'set', values: { wrappers: '[{' } });
  let error: unknown;
  try {
    setupOf(half);
  } catch (thrown) {
    error = thrown;
  }
  t.match(error, { message: /^Wrappers is not JSON/ });
  const refused = reduceSetup(half, { type: 'refused', error });
  t.match(refused.errors, { wrappers: /not JSON/ });
  t.equal(refused.wrappers, '[{');
  t.same(reduceSetup(refused, { type: 'accepted', environment }).errors, {});
  t.end();
});

t.test('violations go to their fields; what belongs to none is shown as a whole', t => {
  const state = reduceSetup(begin(), {
    type: 'refused',
    error: refusal([
      { pointer: '/config/size', detail: 'must be >= 2' },
      { pointer: '/options/goal', detail: 'is outside' },
      { pointer: '/options/start', detail: 'is a hole' },
    ]),
  });
  t.same(state.errors, { 'config/size': 'must be >= 2', options: '/goal: is outside\n/start: is a hole' });
  t.equal(state.problem, undefined);
  t.ok(state.isOpen);
  const error = refusal([{ pointer: '/observation_format', detail: 'unknown' }]);
  t.equal(reduceSetup(begin(), { type: 'refused', error }).problem, error);
  t.end();
});

t.test('the seed that is played is shown, unless another one is being written', t => {
  const played = reduceSetup(begin(), { type: 'played', seed: 42 });
  t.equal(played.seed, '42');
  const written = reduceSetup(played, { type: 'set', values: { seed: '5', isSeedEdited: true } });
  t.equal(reduceSetup(written, { type: 'played', seed: 43 }).seed, '5');
  t.equal(reduceSetup(played, { type: 'played', seed: 42 }), played);
  t.end();
});
