import t from 'tap';
import { LossScale } from './loss-scale.ts';

t.test('the scale halves at an overflow and doubles after enough steps without', async t => {
  const scale = new LossScale({ initial: 8, growthInterval: 3, backOff: 0.5 });
  const after = (finite: boolean): number => {
    if (finite) scale.succeeded();
    else scale.overflowed();
    return scale.scale;
  };
  t.same([true, true, true, true].map(after), [8, 8, 16, 16]);
  t.same([true, false, true, true, true].map(after), [16, 8, 8, 8, 16]);
});

t.test('a restored scale continues where the other was', async t => {
  const settings = { initial: 8, growthInterval: 3, backOff: 0.5 };
  const first = new LossScale(settings);
  first.overflowed();
  first.succeeded();
  first.succeeded();
  const second = new LossScale(settings);
  second.restore(first.state);
  for (const scale of [first, second]) scale.succeeded();
  t.same(second.state, first.state);
  t.equal(second.scale, 8);
  second.restore(undefined);
  t.same(second.state, { scale: 8, steps: 0 });
});

t.test('the loss scale stays within bounds and reports when no scale helps', async t => {
  const large = new LossScale({ initial: 2 ** 24, growthInterval: 1, backOff: 0.5 });
  large.succeeded();
  t.equal(large.scale, 2 ** 24);
  const small = new LossScale({ initial: 1.5, growthInterval: 1, backOff: 0.1 });
  small.overflowed();
  t.equal(small.scale, 1);
  t.throws(() => small.overflowed(), /not finite in float16 even with the loss scaled by 1;.*float32/);
});

t.test('settings out of range are named', async t => {
  const settings = { initial: 8, growthInterval: 3, backOff: 0.5 };
  t.throws(() => new LossScale({ ...settings, initial: 0.5 }), /initial must be from 1 to 16777216, got 0.5/);
  t.throws(() => new LossScale({ ...settings, growthInterval: 0 }), /growthInterval .* got 0/);
  t.throws(() => new LossScale({ ...settings, backOff: 1 }), /backOff .* got 1/);
});
