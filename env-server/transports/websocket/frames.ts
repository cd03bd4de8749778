import {
  bytesOf,
  MAX_BYTES_PER_UNIT,
  type TextChunks,
  unitsOf,
  writeText,
  written,
} from '../replies/texts.ts';

/** First bytes of unfragmented frames (RFC 6455, section 5.2). */
const FINAL_TEXT = 0x81;
const FINAL_BINARY = 0x82;
const MAX_SHORT = 125;
const MAX_16_BIT = 0xffff;
const LENGTH_16_BIT = 126;
const LENGTH_64_BIT = 127;
const MEDIUM_HEADER = 4;
const MAX_HEADER = 10;

/**
 * Texts as the WebSocket frames of a server (unmasked, not compressed), one behind the other in one buffer,
 * so that all replies of a moment cost one write.
 */
export function textFrames(texts: readonly TextChunks[]): Buffer {
  let bound = 0;
  for (const text of texts) bound += MAX_HEADER + unitsOf(text) * MAX_BYTES_PER_UNIT;
  return written(bound, buffer => {
    let end = 0;
    for (const text of texts) end = writeFrame(buffer, end, text);
    return end;
  });
}

/** Messages as binary frames, all in one buffer as well. */
export function binaryFrames(messages: readonly Uint8Array[]): Buffer {
  let bound = 0;
  for (const message of messages) bound += MAX_HEADER + message.length;
  const buffer = Buffer.allocUnsafe(bound);
  let end = 0;
  for (const message of messages) {
    buffer[end] = FINAL_BINARY;
    end = writeLength(buffer, end, message.length);
    buffer.set(message, end);
    end += message.length;
  }
  return buffer.subarray(0, end);
}

function writeFrame(buffer: Buffer, start: number, text: TextChunks): number {
  // The header's size depends on the text's, which is known only when it is written: texts that surely have
  // the header of middle size, which are nearly all, are written where they belong, others counted first.
  const units = unitsOf(text);
  const surelyMedium = units > MAX_SHORT && units * MAX_BYTES_PER_UNIT <= MAX_16_BIT;
  buffer[start] = FINAL_TEXT;
  if (!surelyMedium) return writeText(buffer, writeLength(buffer, start, bytesOf(text)), text);
  const end = writeText(buffer, start + MEDIUM_HEADER, text);
  writeLength(buffer, start, end - start - MEDIUM_HEADER);
  return end;
}

/** Writes the length of a frame that begins at `start`, and gives where its body begins. */
function writeLength(buffer: Buffer, start: number, length: number): number {
  if (length <= MAX_SHORT) {
    buffer[start + 1] = length;
    return start + 2;
  }
  if (length <= MAX_16_BIT) {
    buffer[start + 1] = LENGTH_16_BIT;
    buffer.writeUInt16BE(length, start + 2);
    return start + MEDIUM_HEADER;
  }
  buffer[start + 1] = LENGTH_64_BIT;
  buffer.writeBigUInt64BE(BigInt(length), start + 2);
  return start + MAX_HEADER;
}
