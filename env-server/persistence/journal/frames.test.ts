import { crc32 } from 'node:zlib';
import fc from 'fast-check';
import t from 'tap';
import type { Json } from '../../../shared/json.ts';
import {
  checksum,
  FrameBuffer,
  frameEnd,
  HEADER_BYTES,
  MAX_PAYLOAD_BYTES,
  nextFrame,
  parseFrame,
  SEPARATOR,
} from './frames.ts';

const STEP = 's'.charCodeAt(0);
const id = fc.stringMatching(/^[\w-]{1,128}$/);
const body = fc.option(
  fc.oneof(
    fc.jsonValue(),
    fc.string({ unit: 'binary', maxLength: 400 }),
    fc.string({ unit: 'grapheme', maxLength: 400 }),
    fc.integer(),
    fc.constantFrom(-0, 1e300, 0.1, '\u001e', '\ud800', '"\\\n'),
  ),
  { nil: undefined },
);

t.test('a frame holds any value that was put in', async () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(id, fc.nat(), body), { minLength: 1, maxLength: 5 }), records => {
      const buffer = new FrameBuffer();
      for (const [sessionId, n, value] of records) buffer.add(STEP, sessionId, n, value as Json);
      const { bytes } = buffer;
      let offset = 0;
      for (const [sessionId, n, value] of records) {
        const end = frameEnd(bytes, offset);
        if (end === undefined) return false;
        const json = value === undefined ? undefined : JSON.stringify(value);
        const frame = parseFrame(bytes, offset, end);
        const same = frame.body === undefined ? undefined : JSON.stringify(frame.body);
        if (frame.kind !== 's' || frame.sessionId !== sessionId || frame.n !== n || same !== json)
          return false;
        // No payload has a byte that could begin a frame.
        if (bytes.subarray(offset + HEADER_BYTES, end).includes(SEPARATOR)) return false;
        offset = end;
      }
      return offset === bytes.length;
    }),
  );
});

t.test('the checksum is that of zlib, for short and long payloads', async t => {
  for (const length of [0, 1, 7, 255, 256, 257, 1000]) {
    const bytes = Buffer.from(Uint8Array.from({ length }, (_, i) => (i * 37) & 0xff));
    t.equal(checksum(bytes, 0, length), crc32(bytes, length), `${length} bytes`);
  }
});

t.test('the reader detects every changed byte and continues at the next frame', async t => {
  const buffer = new FrameBuffer();
  buffer.add(STEP, 'sA', 1, 'Left');
  const second = buffer.length;
  buffer.add(STEP, 'sB', 1, { move: 'Right' });
  const { bytes } = buffer;
  for (let at = 0; at < second; at++) {
    for (const bit of [1, 0x80]) {
      const damaged = Buffer.from(bytes);
      damaged[at] ^= bit;
      t.equal(frameEnd(damaged, 0), undefined, `byte ${at}`);
      t.equal(nextFrame(damaged, 1), second);
    }
  }
});

t.test('a record that is too large is refused with nothing added', async t => {
  const buffer = new FrameBuffer();
  buffer.add(STEP, 'sA', 1, 'Left');
  const { length } = buffer;
  t.throws(() => buffer.add(STEP, 'sA', 2, 'x'.repeat(MAX_PAYLOAD_BYTES)), { name: 'RecordTooLarge' });
  t.equal(buffer.length, length);
  buffer.add(STEP, 'sA', 2, 'Right');
  t.equal(frameEnd(buffer.bytes, length), buffer.length);
});
