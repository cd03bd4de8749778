import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import protobuf from 'protobufjs';
import t from 'tap';
import { crc32c } from './crc32c.ts';
import { TensorBoardWriter } from './tensorboard.ts';

/** The public messages, read by a protobuf library that shares nothing with the writer. */
const { root } = protobuf.parse(
  `
  syntax = "proto3";
  message SessionLog { enum SessionStatus { STATUS_UNSPECIFIED = 0; START = 1; STOP = 2; } SessionStatus status = 1; }
  message Summary { message Value { string tag = 1; float simple_value = 2; } repeated Value value = 1; }
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

t.test('the check value of CRC-32C', async t => {
  t.equal(crc32c(new TextEncoder().encode('123456789')), 0xe3069283);
  t.equal(crc32c(new Uint8Array(32)), 0x8a9136aa);
});

t.test('scalars read back with another reader, checksums and resume mark included', async t => {
  const folder = t.testdir();
  const writer = new TensorBoardWriter(folder, 300, 1_700_000_000_000);
  writer.write(300, { 'actor/pg_loss': -0.25, 'perf/tokens_per_second': 123456 }, 1_700_000_001_500);
  writer.write(70_000, { 'actor/pg_loss': Number.NaN });
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
});
