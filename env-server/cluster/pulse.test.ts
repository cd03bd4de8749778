import t from 'tap';
import { Pulse } from './pulse.ts';

t.test('who is silent for too long is named, once', async t => {
  const pulse = new Pulse(4, 0);
  pulse.heard(0, 0);
  pulse.heard(1, 0);
  const named: number[][] = [];
  for (let now = 1000; now <= 8000; now += 1000) {
    pulse.heard(0, now);
    named.push(pulse.look(now));
  }
  t.same(named, [[], [], [], [], [1], [], [], []]);
  pulse.heard(1, 8000);
  t.same(pulse.look(9000), [], 'it is back');
});

t.test('whoever ended is not missed', async t => {
  const pulse = new Pulse(4, 0);
  pulse.heard(0, 0);
  pulse.forget(0);
  for (let now = 1000; now <= 8000; now += 1000) t.same(pulse.look(now), []);
});

t.test('one that was held up itself gives the others time to be heard', async t => {
  const pulse = new Pulse(4, 0);
  pulse.heard(0, 0);
  pulse.heard(1, 0);
  t.same(pulse.look(60_000), []);
  pulse.heard(0, 60_001);
  const named: number[] = [];
  for (let now = 61_000; now <= 64_000; now += 1000) named.push(...pulse.look(now));
  t.same(named, [1]);
});
