import t from 'tap';
import { actionRemark, briefNumber, episodeStatus, formatNumber, formatValue } from './format.ts';

t.test('numbers read well', t => {
  t.equal(formatNumber(-0.1), '−0.1');
  t.equal(formatNumber(0.1 + 0.2), '0.3');
  t.equal(formatNumber(10), '10');
  t.equal(formatNumber(1 / 3), '0.333333');
  for (const [value, text] of [
    [1 / 3, '0.333'],
    [-0.0001234, '−0.000123'],
    [1234.567, '1234.57'],
    [12, '12'],
  ] as const)
    t.equal(briefNumber(value), text);
  t.end();
});

t.test('text stays text, the rest becomes JSON', t => {
  t.equal(formatValue('Up'), 'Up');
  t.equal(formatValue({ x: 1 }), '{"x":1}');
  t.equal(formatValue([1], 2), '[\n  1\n]');
  t.end();
});

t.test('an episode’s standing in a word', t => {
  t.same(episodeStatus({ info: {} }), { text: 'in progress', tone: 'plain' });
  t.same(episodeStatus({ terminated: true, info: { success: true } }), { text: 'solved', tone: 'good' });
  t.same(episodeStatus({ terminated: true, truncated: true, info: {} }), { text: 'ended', tone: 'bad' });
  t.same(episodeStatus({ truncated: true, info: { success: true } }), { text: 'cut short', tone: 'warn' });
  t.end();
});

t.test('the remark says what an action did', t => {
  t.equal(actionRemark({}), '');
  t.equal(actionRemark({ action_is_valid: true, action_is_effective: true }), '');
  t.equal(actionRemark({ action_is_valid: true, action_is_effective: false }), 'no effect');
  t.equal(actionRemark({ action_is_valid: false, action_is_effective: false }), 'not valid');
  t.equal(actionRemark({ action_is_valid: false, reason: 'off_board' }), 'not valid: off board');
  t.end();
});
