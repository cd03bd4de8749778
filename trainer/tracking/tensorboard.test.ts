import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import protobuf from 'protobufjs';
import t from 'tap';
import { TensorBoardWriter } from './tracker.ts';

/** The public messages. */
const { root } = protobuf.parse(
  `
  syntax = "proto3";
  message SessionLog { enum SessionStatus { STATUS_UNSPECIFIED = 0; START = 1; STOP = 2; } SessionStatus status = 1; }
  message Summary { message Value { string tag = 1; oneof value { float simple_value = 2; } } repeated Value value = 1; }
  message Event { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5; SessionLog session_log = 7; }
`,
  { keepCase: true },
);

/** CRC-32C bit by bit, without a table. */
function slowCrc(bytes: Uint8Array): number {
  let crc = 0xffffffffn;
  for (const byte of bytes) {
    crc ^= BigInt(byte);
    for (let bit = 0; bit < 8; bit++) crc = crc & 1n ? (crc >> 1n) ^ 0x82f63b78n : crc >> 1n;
  }
  return Number(crc ^ 0xffffffffn);
}

function readEvents(file: string): { [key: string]: unknown }[] {
  const bytes = readFileSync(file);
  const Event = root.lookupType('Event');
  const unmask = (masked: number) => {
    const rotated = (masked - 0xa282ead8) >>> 0;
    return ((rotated << 15) | (rotated >>> 17)) >>> 0;
  };
  const events = [];
  for (let at = 0; at < bytes.length; ) {
    const length = Number(bytes.readBigUInt64LE(at));
    const data = bytes.subarray(at + 12, at + 12 + length);
    if (unmask(bytes.readUInt32LE(at + 8)) !== slowCrc(bytes.subarray(at, at + 8)))
      throw new Error('length crc');
    if (unmask(bytes.readUInt32LE(at + 12 + length)) !== slowCrc(data)) throw new Error('data crc');
    events.push(Event.toObject(Event.decode(data), { longs: Number, enums: String }));
    at += 16 + length;
  }
  return events;
}

t.test('scalars read back with their checksums and the mark of a resumed run', async t => {
  const folder = t.testdir();
  const writer = new TensorBoardWriter(folder, 300, 1_700_000_000_000);
  writer.write(300, { 'actor/pg_loss': -0.25, 'perf/tokens_per_second': 123456 }, 1_700_000_001_500);
  writer.write(70_000, { 'actor/pg_loss': Number.NaN });
  writer.write(70_001, { 'actor/pg_loss': 0 });
  const [name] = readdirSync(folder);
  t.match(name, /^events\.out\.tfevents\.1700000000\./);
  const events = readEvents(join(folder, name));
  t.equal(events[0].file_version, 'brain.Event:2');
  t.match(events[1], { step: 300, session_log: { status: 'START' } });
  t.same(events[2], {
    wall_time: 1_700_000_001.5,
    step: 300,
    summary: {
      value: [
        { tag: 'actor/pg_loss', simple_value: -0.25 },
        { tag: 'perf/tokens_per_second', simple_value: 123456 },
      ],
    },
  });
  t.equal(events[3].step, 70_000);
  t.match(events[4].summary, { value: [{ tag: 'actor/pg_loss', simple_value: 0 }] }, 'zero is a value');
});

t.test('the file has the bytes of a writer that shared no code with this one', async t => {
  const folder = t.testdir();
  const writer = new TensorBoardWriter(folder, 300, 1_700_000_000_000);
  writer.write(300, { 'actor/pg_loss': -0.25, 'perf/tokens_per_second': 123456 }, 1_700_000_001_500);
  writer.write(70_000, { 'actor/pg_loss': Number.NaN }, 1_700_000_002_000);
  const golden =
    'GAAAAAAAAACjf0siCQAAAED8VNlBGg1icmFpbi5FdmVudDoy7O2PnRAAAAAAAAAAlfv+GAkAAABA/FTZQRCsAjoCCAGVQQYYQwAAAAAAAACxhSWgCQAAYED8VNlBEKwCKjUKFAoNYWN0b3IvcGdfbG9zcxUAAIC+Ch0KFnBlcmYvdG9rZW5zX3Blcl9zZWNvbmQVACDxR/7KrRUlAAAAAAAAAOq8NvMJAACAQPxU2UEQ8KIEKhYKFAoNYWN0b3IvcGdfbG9zcxUAAMB/FCkkqA==';
  t.equal(readFileSync(join(folder, readdirSync(folder)[0])).toString('base64'), golden);
});
