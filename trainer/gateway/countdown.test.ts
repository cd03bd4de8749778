import { setTimeout as pause } from 'node:timers/promises';
import t from 'tap';
import { Countdown } from './work-queue.ts';

t.test('a countdown runs out once for each reset, and not while it is paused', async t => {
  let overs = 0;
  let wake = () => {};
  const over = () =>
    new Promise<void>(resolve => {
      wake = resolve;
    });
  const countdown = new Countdown(50, () => {
    overs++;
    wake();
  });
  countdown.run();
  countdown.pause();
  await pause(150);
  t.equal(overs, 0, 'paused');
  for (const round of [1, 2]) {
    const ended = over();
    countdown.run();
    await ended;
    countdown.pause();
    countdown.run();
    await pause(150);
    t.equal(overs, round);
    countdown.reset();
  }
  await pause(150);
  t.equal(overs, 2, 'a reset does not start it');
});
