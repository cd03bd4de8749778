import t from 'tap';
import { DEFAULT_SETTINGS } from '../config/settings.ts';
import { LimitAccounting } from './limit-accounting.ts';

t.test('limits hold over all workers; one that ends takes its sessions with it', async t => {
  const accounting = new LimitAccounting({
    ...DEFAULT_SETTINGS,
    maxSessions: 6,
    maxSessionsPerClient: 4,
    maxSessionsPerEnvironment: 3,
  });
  t.equal(accounting.admit(0, 'ann', 'Lake-v0', 2), undefined);
  t.equal(accounting.admit(1, 'ben', 'Lake-v0', 1), undefined);
  t.same(accounting.admit(1, 'ben', 'Lake-v0', 1), { open: 3, most: 3, whose: 'of Lake-v0' });
  t.equal(accounting.admit(1, 'ann', 'Cube-v0', 2), undefined);
  t.same(accounting.admit(0, 'ann', 'Maze-v0', 1), { open: 4, most: 4, whose: 'of one client' });
  t.same(accounting.admit(0, 'eve', 'Maze-v0', 2), { open: 5, most: 6, whose: 'on this server' });
  t.equal(accounting.open, 5, 'what was refused does not count');

  accounting.change(1, 'ann', 'Cube-v0', -1);
  t.equal(accounting.admit(0, 'ann', 'Maze-v0', 1), undefined);
  accounting.forget(1);
  t.equal(accounting.open, 3);
  t.equal(accounting.admit(1, 'ben', 'Lake-v0', 1), undefined);
  accounting.change(1, 'ben', 'Lake-v0', 10);
  t.equal(accounting.open, 14, 'what is resumed is not asked for');
  accounting.forget(1);
  accounting.forget(1);
  accounting.forget(0);
  t.equal(accounting.open, 0);
});
