import t from 'tap';
import { DEFAULT_SETTINGS } from '../config/settings.ts';
import { Admission } from '../sessions/limits/admission.ts';
import { ByteAccounting } from './byte-accounting.ts';
import { SupervisorCounts } from './counts.ts';
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

/** Workers with a supervisor, whose messages arrive when `exchange` is called. */
function cluster(limits: { maxBytes: number; maxBytesPerClient: number }, workers: number) {
  const accounting = new ByteAccounting();
  const members = Array.from({ length: workers }, (_, index) => {
    const counts = new SupervisorCounts(message => {
      if (message.kind === 'bytes') accounting.hear(index, message);
    });
    return { counts, admission: new Admission({ ...DEFAULT_SETTINGS, ...limits }, counts) };
  });
  const exchange = () => {
    for (const { counts } of members) counts.tellBytes();
    for (const [index, report] of accounting.reports([...members.keys()])) {
      members[index].counts.hearBytes(report);
    }
  };
  const account = (index: number, owner: string) => members[index].admission.client(owner).account;
  return { accounting, account, exchange };
}

t.test('budgets in bytes that are set hold over all workers', async t => {
  const { accounting, account, exchange } = cluster({ maxBytes: 1000, maxBytesPerClient: 600 }, 3);
  account(0, 'ann').add(300);
  account(1, 'ann').add(250);
  account(1, 'ben').add(300);
  account(2, 'ann').requireRoom(600);
  exchange();
  t.throws(() => account(2, 'ann').requireRoom(51), { code: 'token_budget_exceeded' });
  account(2, 'ann').requireRoom(50);
  t.throws(() => account(0, 'ann').requireRoom(51), { code: 'token_budget_exceeded' });
  t.throws(() => account(2, 'eve').requireRoom(151), { code: 'server_budget_exceeded' });
  account(2, 'eve').requireRoom(150);
  account(0, 'ann').add(-300);
  exchange();
  account(2, 'ann').requireRoom(350);
  accounting.forget(1);
  exchange();
  account(2, 'ann').requireRoom(600);
  account(2, 'eve').requireRoom(600);
  t.same([...accounting.reports([0, 1, 2])], [], 'what has not changed is not told again');
});

t.test('budgets in bytes that are shares of the heap are those of each worker', async t => {
  const { account, exchange } = cluster({ maxBytes: 0, maxBytesPerClient: 0 }, 2);
  account(0, 'ann').add(2 ** 40);
  exchange();
  account(1, 'ann').requireRoom(1000);
  t.throws(() => account(0, 'ann').requireRoom(1), { code: 'token_budget_exceeded' });
});
