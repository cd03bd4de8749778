import t from 'tap';
import { DEFAULT_SETTINGS } from '../config/settings.ts';
import { Ledger } from './ledger.ts';

t.test('limits hold over all workers; one that ends takes its sessions with it', async t => {
  const ledger = new Ledger({
    ...DEFAULT_SETTINGS,
    maxSessions: 6,
    maxSessionsPerClient: 4,
    maxSessionsPerEnvironment: 3,
  });
  t.equal(ledger.admit(0, 'ann', 'Lake-v0', 2), undefined);
  t.equal(ledger.admit(1, 'ben', 'Lake-v0', 1), undefined);
  t.same(ledger.admit(1, 'ben', 'Lake-v0', 1), { open: 3, most: 3, whose: 'of Lake-v0' });
  t.equal(ledger.admit(1, 'ann', 'Cube-v0', 2), undefined);
  t.same(ledger.admit(0, 'ann', 'Maze-v0', 1), { open: 4, most: 4, whose: 'of one client' });
  t.same(ledger.admit(0, 'eve', 'Maze-v0', 2), { open: 5, most: 6, whose: 'on this server' });
  t.equal(ledger.open, 5, 'what was refused does not count');

  ledger.change(1, 'ann', 'Cube-v0', -1);
  t.equal(ledger.admit(0, 'ann', 'Maze-v0', 1), undefined);
  ledger.forget(1);
  t.equal(ledger.open, 3);
  t.equal(ledger.admit(1, 'ben', 'Lake-v0', 1), undefined);
  ledger.change(1, 'ben', 'Lake-v0', 10);
  t.equal(ledger.open, 14, 'what is resumed is not asked for');
  ledger.forget(1);
  ledger.forget(1);
  ledger.forget(0);
  t.equal(ledger.open, 0);
});
