import t from 'tap';
import { HeartbeatMonitor } from './heartbeat.ts';

t.test('the monitor names a silent worker once', async t => {
  const monitor = new HeartbeatMonitor(4, 0);
  monitor.heard(0, 0);
  monitor.heard(1, 0);
  const named: number[][] = [];
  for (let now = 1000; now <= 8000; now += 1000) {
    monitor.heard(0, now);
    named.push(monitor.look(now));
  }
  t.same(named, [[], [], [], [], [1], [], [], []]);
  monitor.heard(1, 8000);
  t.same(monitor.look(9000), [], 'it is back');
});

t.test('a worker that ended is not reported as silent', async t => {
  const monitor = new HeartbeatMonitor(4, 0);
  monitor.heard(0, 0);
  monitor.forget(0);
  for (let now = 1000; now <= 8000; now += 1000) t.same(monitor.look(now), []);
});

t.test('a monitor that was held up gives workers more time', async t => {
  const monitor = new HeartbeatMonitor(4, 0);
  monitor.heard(0, 0);
  monitor.heard(1, 0);
  t.same(monitor.look(60_000), []);
  monitor.heard(0, 60_001);
  const named: number[] = [];
  for (let now = 61_000; now <= 64_000; now += 1000) named.push(...monitor.look(now));
  t.same(named, [1]);
});
