import t from 'tap';
import { IntervalMeter } from './tally.ts';

t.test('overlaps count once, and an interval continues over the border of two measurements', async t => {
  let now = 0;
  const meter = new IntervalMeter(() => now);
  meter.begin();
  now = 2;
  meter.begin();
  now = 4;
  meter.end();
  now = 5;
  meter.end();
  now = 8;
  meter.begin();
  now = 10;
  t.equal(meter.takeShare(), 0.7);
  now = 13;
  meter.end();
  now = 20;
  t.equal(meter.takeShare(), 0.3);
  t.equal(meter.takeShare(), 0, 'no time has passed');
});

t.test('work is measured whether it succeeds or not', async t => {
  let now = 0;
  const meter = new IntervalMeter(() => now);
  await t.rejects(
    meter.during(async () => {
      now = 1;
      throw new Error('no luck');
    }),
    /no luck/,
  );
  now = 4;
  t.equal(meter.takeShare(), 0.25);
});
