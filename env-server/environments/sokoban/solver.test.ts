import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import t from 'tap';
import { Random } from '../../../shared/random.ts';
import { atOnce } from '../../../shared/slices.ts';
import { playing } from '../../../test/environment-contract.test-data.ts';
import { sokoban } from './sokoban.ts';
import { KnownStates, SearchTooLarge, solve } from './solver.ts';

t.setTimeout(300_000);

const play = playing(sokoban);

/** An open room with boxes in columns on the left and their targets on the right. */
function wideRoom(side: number, boxes: number): string[] {
  const rows = Array.from({ length: side }, () => new Array<string>(side).fill('_'));
  for (const row of rows) row[0] = row[side - 1] = '#';
  rows[0].fill('#');
  rows[side - 1].fill('#');
  for (let box = 0; box < boxes; box++) {
    const row = 3 + 2 * (box % 20);
    rows[row][4 + 3 * Math.floor(box / 20)] = 'X';
    rows[row][side - 5 - 3 * Math.floor(box / 20)] = 'O';
  }
  rows[1][1] = 'P';
  return rows.map(row => row.join(''));
}

/** Asks for the reference policy of the same kind of room four times at once, and for that of a small room next to them. */
const FOUR_AT_ONCE = `
const { playing } = await import(${JSON.stringify(new URL('../../../test/environment-contract.test-data.ts', import.meta.url).href)});
const { sokoban } = await import(${JSON.stringify(new URL('./sokoban.ts', import.meta.url).href)});
const play = playing(sokoban);
const rooms = await Promise.all([0, 1, 2, 3].map(() => play.reset({}, { layout: ${JSON.stringify(wideRoom(60, 20))} })));
const plans = rooms.map(room => sokoban.references.optimal.plan(room, 1).then(
  () => 'planned', error => error.code + ': ' + error.message));
const small = await play.finish(await play.reset({}, {}, 7), 'optimal', 100);
console.log(JSON.stringify({ plans: await Promise.all(plans), small: small.success, peak: process.resourceUsage().maxRSS }));
`;

t.test('four searches in a room without bounds end with an error each, and harm nothing else', async t => {
  const { stdout } = await promisify(execFile)(
    process.execPath,
    ['--max-old-space-size=200', '--input-type=module', '-e', FOUR_AT_ONCE],
    { timeout: 240_000 },
  );
  const { plans, small, peak } = JSON.parse(stdout) as { plans: string[]; small: boolean; peak: number };
  t.equal(plans.length, 4);
  for (const plan of plans)
    t.match(plan, /^unsupported: optimal does not solve this room: its search takes more than 64 MiB/);
  t.ok(small, 'a room of an ordinary size is solved meanwhile');
  t.ok(peak < 450 * 1024, `${peak} KiB at most`);
});

t.test('a search keeps to its memory', async t => {
  const { room, player, boxes } = await play.reset({}, { layout: wideRoom(30, 8) });
  for (const bytes of [2 ** 14, 2 ** 18, 2 ** 22])
    t.throws(() => atOnce(solve(room, player, boxes, { bytes })), SearchTooLarge);
  const { room: huge, ...rest } = await play.reset({}, { layout: wideRoom(60, 60) });
  t.throws(() => atOnce(solve(huge, rest.player, rest.boxes, { bytes: 2 ** 16 })), SearchTooLarge);
});

t.test('KnownStates keeps each state once, in the order of arrival, at any size', async t => {
  const known = new KnownStates(400, 3, 2 ** 24);
  const rng = Random.fromSeed(1);
  const met = new Map<string, number>();
  for (let i = 0; i < 100_000; i++) {
    const state = Array.from({ length: 4 }, () => rng.integer(20));
    known.scratch.set(state);
    const parent = rng.integer(1000);
    if (!known.add(parent)) t.fail('there is memory');
    if (!met.has(state.join())) met.set(state.join(), parent);
    if (known.scratch.join() !== state.join()) t.fail('the state is left as it is');
  }
  t.equal(known.count, met.size);
  for (const [number, [text, parent]] of [...met].entries()) {
    known.read(number);
    if (known.scratch.join() !== text || known.parentOf(number) !== parent) t.fail(`state ${number}`);
  }
  const few = new KnownStates(400, 3, 2 ** 16);
  let added = 0;
  for (let i = 0; i < 10_000; i++) {
    few.scratch.set([i % 400, Math.floor(i / 400), 0, 0]);
    if (!few.add(0)) break;
    added++;
  }
  t.ok(added > 1000 && added < 2 ** 16 / 12, `${added} states in 64 KiB`);
});
