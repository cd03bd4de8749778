import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import protobuf from 'protobufjs';
import t from 'tap';
import { WandbRun } from '../sinks.ts';

/** The public messages. */
const { root } = protobuf.parse(
  `
  syntax = "proto3";
  message Item { string key = 1; repeated string nested_key = 2; string value_json = 16; }
  message HistoryStep { int64 num = 1; }
  message History { repeated Item item = 1; HistoryStep step = 2; }
  message Summary { repeated Item update = 1; }
  message Config { repeated Item update = 1; }
  message Options { bool step_sync = 1; bool hidden = 2; bool defined = 3; }
  message Metric { string name = 1; string glob_name = 2; string step_metric = 4; Options options = 6; }
  message Timestamp { int64 seconds = 1; }
  message Run {
    string run_id = 1; string entity = 2; string project = 3; Config config = 4; string run_group = 6;
    string display_name = 8; repeated string tags = 10; Timestamp start_time = 17;
  }
  message Exit { int32 exit_code = 1; }
  message Version { string producer = 1; string min_consumer = 2; }
  message Header { Version version_info = 1; }
  message Record {
    int64 num = 1; History history = 2; Summary summary = 3; Metric metric = 12; Run run = 17; Exit exit = 18; Header header = 21;
  }
`,
  { keepCase: true },
);

interface Item {
  readonly key: string;
  readonly value_json: string;
}
interface Read {
  readonly num: number;
  readonly history?: { readonly item: Item[]; readonly step: { readonly num: number } };
  readonly summary?: { readonly update: Item[] };
  readonly run?: { readonly [key: string]: unknown; readonly config: { readonly update: Item[] } };
  readonly [kind: string]: unknown;
}

/** CRC-32 bit by bit, without a table. */
function slowCrc(bytes: Uint8Array): number {
  let crc = 0xffffffff;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1;
  }
  return (crc ^ 0xffffffff) >>> 0;
}

/** The records of a log, after its header, as LevelDB's documentation says. */
function readLog(file: string): { records: Read[]; types: number[] } {
  const bytes = readFileSync(file);
  if (bytes.toString('latin1', 0, 4) !== ':W&B' || bytes.readUInt16LE(4) !== 0xbee1)
    throw new Error('header');
  const records: Read[] = [];
  const types: number[] = [];
  let parts: Uint8Array[] = [];
  for (let at = 7; at < bytes.length; ) {
    const room = 32_768 - (at % 32_768);
    if (room < 7) {
      at += room;
      continue;
    }
    const length = bytes.readUInt16LE(at + 4);
    const type = bytes[at + 6];
    const piece = bytes.subarray(at + 7, at + 7 + length);
    if (bytes.readUInt32LE(at) !== slowCrc(bytes.subarray(at + 6, at + 7 + length))) throw new Error('crc');
    if (length + 7 > room) throw new Error('a piece leaves its block');
    types.push(type);
    parts.push(piece);
    if (type === 1 || type === 4) {
      const Record = root.lookupType('Record');
      records.push(Record.toObject(Record.decode(Buffer.concat(parts)), { longs: Number }) as Read);
      parts = [];
    }
    at += 7 + length;
  }
  return { records, types };
}

const values = (items: readonly Item[]) =>
  Object.fromEntries(items.map(({ key, value_json }) => [key, JSON.parse(value_json)]));
const settings = { project: 'lakes', entity: null, group: 'seeds', tags: ['nano', 'ppo'] };
const run = { name: 'quickstart-001', config: { seed: 3, loss: { policy: 'ppo' } } };
const filesIn = (folder: string) =>
  readdirSync(folder, { recursive: true })
    .map(String)
    .filter(name => name.endsWith('.wandb'))
    .sort()
    .map(name => join(folder, name));

t.test('an offline run reads back', async t => {
  const folder = t.testdir();
  const writer = new WandbRun(folder, settings, run, 0, new Date('2026-01-02T03:04:05Z'));
  writer.write(0, { 'sft/loss': 2.5 });
  writer.write(1, { 'actor/pg_loss': -0.25, 'critic/vf_loss': Number.NaN });
  await writer.close();
  const [file] = filesIn(folder);
  t.match(file, /offline-run-20260102_030405-([0-9a-f]{8})\/run-\1\.wandb$/);
  const { records } = readLog(file);
  t.same(
    records.map(record => Object.keys(record).filter(key => key !== 'num')[0]),
    ['header', 'run', 'metric', 'metric', 'history', 'history', 'summary', 'exit'],
  );
  t.same(
    records.map(({ num }) => num),
    [1, 2, 3, 4, 5, 6, 7, 8],
  );
  const [, started, , axis, first, second, summary] = records;
  t.match(started.run, {
    project: 'lakes',
    run_group: 'seeds',
    display_name: 'quickstart-001',
    tags: ['nano', 'ppo'],
  });
  t.same(values(started.run!.config.update), run.config);
  t.match(axis.metric, { glob_name: '*', step_metric: 'step' });
  t.match(values(first.history!.item), { 'sft/loss': 2.5, step: 0, _step: 0 });
  t.match(values(second.history!.item), {
    'actor/pg_loss': -0.25,
    'critic/vf_loss': 'NaN',
    step: 1,
    _step: 1,
  });
  t.equal(second.history!.step.num, 1);
  t.match(values(summary.summary!.update), { 'sft/loss': 2.5, 'actor/pg_loss': -0.25, step: 1 });
});

t.test('records are cut where blocks end', async t => {
  const folder = t.testdir();
  const writer = new WandbRun(folder, settings, { ...run, config: { long: 'x'.repeat(100_000) } }, 0);
  for (let step = 0; step < 3000; step++) writer.write(step, { [`loss/${'y'.repeat(step % 97)}`]: step });
  await writer.close();
  const { records, types } = readLog(filesIn(folder)[0]);
  t.equal(records.filter(({ history }) => history).length, 3000);
  t.same([...new Set(types)].sort(), [1, 2, 3, 4], 'whole records, and first, middle and last pieces');
});

t.test('sessions of a resumed run share its id, and their rows are counted on', async t => {
  const folder = t.testdir();
  const now = new Date('2026-01-02T03:04:05Z');
  const first = new WandbRun(folder, settings, run, 0, now);
  first.write(1, { loss: 1 });
  const second = new WandbRun(folder, settings, run, 1, now);
  second.write(2, { loss: 2 });
  await second.close();
  const files = filesIn(folder);
  t.equal(files.length, 2, 'a separate file each, also within a second');
  const logs = files.map(file => readLog(file).records);
  t.equal(logs[0][1].run!.run_id, logs[1][1].run!.run_id);
  t.equal(logs[1].find(({ history }) => history)!.history!.step.num, 1);
  t.notOk(
    logs[0].some(record => 'exit' in record),
    'a session that was killed has no end',
  );
});
