import t from 'tap';
import { frozenLake } from '../frozenlake/frozenlake.ts';
import { resolveConfig, resolveOptions } from './settings.ts';

t.test('defaults, then the preset, then what was given', async t => {
  t.match(resolveConfig(frozenLake), { size: 4, success_rate: 0.8, symbols: { goal: 'G' } });
  const config = resolveConfig(frozenLake, { preset: 'larger', p_frozen: 0.95, symbols: { goal: '*' } });
  t.match(config, { size: 8, p_frozen: 0.95, symbols: { goal: '*', player: 'P' } });
  t.notOk('preset' in config);
});

t.test('the given settings are not changed', async t => {
  const given = { symbols: { goal: '*' } };
  resolveConfig(frozenLake, given);
  t.same(given, { symbols: { goal: '*' } });
});

t.test('faults carry a pointer and the valid choices', async t => {
  const fault = (config: object) => {
    try {
      resolveConfig(frozenLake, config as never);
    } catch (error) {
      return error as { pointer: string; message: string };
    }
    throw new Error('nothing was thrown');
  };
  t.match(fault({ preset: 'huge' }), { pointer: '/preset', message: /simple, deterministic/ });
  t.match(fault({ siez: 4 }), { pointer: '/siez', message: /it knows size, p_frozen.*, preset$/ });
  t.match(fault({ size: 'four' }), { pointer: '/size', message: /integer/ });
  t.match(fault({ symbols: { cow: 'C' } }), { pointer: '/symbols/cow' });
  t.match(fault(JSON.parse('{"__proto__": {"size": 5}}')), { pointer: '/__proto__' });
  t.match(fault({ size: Number.NaN }), { pointer: '/size' });
});

t.test('options are checked alike', async t => {
  t.same(resolveOptions(frozenLake, { start: [0, 1] }), { start: [0, 1] });
  t.throws(() => resolveOptions(frozenLake, { start: [0] }), { name: 'InvalidOptions' });
  t.throws(() => resolveOptions(frozenLake, { maze: 1 }), /it knows layout/);
});
