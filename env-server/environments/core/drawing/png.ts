import { createRequire } from 'node:module';
import { crc32, deflateSync } from 'node:zlib';
import type { Json } from '../../../../shared/json.ts';
import {
  type ImagePart,
  isParts,
  type ObservationPart,
  partsOfText,
} from '../../../../shared/observation-parts.ts';
import type { AnyEnvironment, Picture } from '../environment.ts';

/** Unfiltered rows of flat colors compress best, and four times as fast as filtered ones. */
const PACKING = { filterType: 0, deflateLevel: 6, deflateStrategy: 0 } as const;
const SIGNATURE = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);
const BYTES_A_PIXEL = 4;
const MAX_COLORS = 256;
const BIT_DEPTH = 8;
const WITH_PALETTE = 3;
const OPAQUE = 0xff;
/** PNG filter type of a row that holds differences from the row above. */
const FILTER_UP = 2;
const RGB_BYTES = 3;
const WORD_BYTES = 4;

/**
 * A picture as a PNG file. Pictures painted here have a few flat colors: with a palette a pixel takes one byte, which
 * compresses several times as fast to half the size. A picture with many colors, or with transparency, is written
 * without a palette (by pngjs, which supports none).
 */
export function encodePng(picture: Picture): Buffer {
  const { width, height, data } = picture;
  const indexed = indexedRows(picture);
  if (indexed) return withPalette(width, height, indexed);
  const { PNG } = pngjs();
  const png = new PNG({ width, height });
  png.data = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
  return PNG.sync.write(png, PACKING);
}

/** The library for other pictures, loaded for the first one. */
function pngjs(): typeof import('pngjs') {
  return createRequire(import.meta.url)('pngjs');
}

/** A picture as a `data:` URL, which browsers show and vision models accept. */
export function pictureUrl(picture: Picture): string {
  return `data:image/png;base64,${encodePng(picture).toString('base64')}`;
}

interface Indexed {
  /** Three bytes a color. */
  readonly palette: Buffer;
  /** Rows of one byte a pixel, each after its filter number: a row equal to the one above is all zeros. */
  readonly rows: Buffer;
}

/** Undefined for a picture with too many colors for a palette, or with transparent ones. */
function indexedRows({ width, height, data }: Picture): Indexed | undefined {
  const numbers = new Map<number, number>();
  const palette = Buffer.alloc(RGB_BYTES * MAX_COLORS);
  const rows = Buffer.alloc(height * (width + 1));
  const pixels = new Uint32Array(data.buffer, data.byteOffset, width * height);
  const bytes = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
  const rowBytes = BYTES_A_PIXEL * width;
  let last = -1;
  let number = 0;
  for (let row = 0; row < height; row++) {
    const start = row * rowBytes;
    let at = row * (width + 1);
    if (row > 0 && bytes.compare(bytes, start - rowBytes, start, start, start + rowBytes) === 0) {
      rows[at] = FILTER_UP;
      continue;
    }
    at++;
    for (let pixel = row * width, end = pixel + width; pixel < end; pixel++, at++) {
      const color = pixels[pixel];
      if (color !== last) {
        last = color;
        const known = numbers.get(color);
        number = known ?? numbers.size;
        if (known === undefined) {
          const begin = BYTES_A_PIXEL * pixel;
          if (number === MAX_COLORS || data[begin + RGB_BYTES] !== OPAQUE) return undefined;
          numbers.set(color, number);
          palette.set(data.subarray(begin, begin + RGB_BYTES), RGB_BYTES * number);
        }
      }
      rows[at] = number;
    }
  }
  return { palette: palette.subarray(0, RGB_BYTES * numbers.size), rows };
}

function withPalette(width: number, height: number, { palette, rows }: Indexed): Buffer {
  const header = Buffer.from([0, 0, 0, 0, 0, 0, 0, 0, BIT_DEPTH, WITH_PALETTE, 0, 0, 0]);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, WORD_BYTES);
  return Buffer.concat([
    SIGNATURE,
    ...chunk('IHDR', header),
    ...chunk('PLTE', palette),
    ...chunk('IDAT', deflateSync(rows, { level: PACKING.deflateLevel })),
    ...chunk('IEND', Buffer.alloc(0)),
  ]);
}

/** Length, type, data and checksum. */
function chunk(type: string, data: Buffer): Buffer[] {
  const length = Buffer.alloc(WORD_BYTES);
  length.writeUInt32BE(data.length);
  const name = Buffer.from(type, 'latin1');
  const checksum = Buffer.alloc(WORD_BYTES);
  checksum.writeUInt32BE(crc32(data, crc32(name)));
  return [length, name, data, checksum];
}

/**
 * A state as parts: its text, and its picture where the environment paints one. Pictures inside the text, as in the
 * format `image`, become parts at that point, and no other picture is added.
 * @param size of pictures' longer side, in pixels; the painted size by default
 */
export function observedParts(environment: AnyEnvironment, state: Json, size?: number): ObservationPart[] {
  const seen = environment.observe(state, 'text');
  if (isParts(seen)) return [...seen];
  const parts = partsOfText(typeof seen === 'string' ? seen : JSON.stringify(seen));
  if (parts.some(({ type }) => type === 'image')) {
    return size === undefined
      ? parts
      : parts.map(part => (part.type === 'image' ? scaledPart(part, size) : part));
  }
  if (!environment.render) return parts;
  const picture = environment.render(state);
  return [...parts, imagePart(size === undefined ? picture : scaled(picture, size))];
}

/** An environment extended by the form `parts`; its other members are unchanged. */
export function withParts(environment: AnyEnvironment): AnyEnvironment {
  const observe: AnyEnvironment['observe'] = (state, format) =>
    format === 'parts'
      ? (observedParts(environment, state) as unknown as Json)
      : environment.observe(state, format);
  return Object.assign(Object.create(environment) as AnyEnvironment, { observe });
}

/** Longest side that callers may request, in pixels: such a picture takes milliseconds. */
export const MAX_PICTURE_SIZE = 1024;
export const MIN_PICTURE_SIZE = 16;

/**
 * A picture at another size, with its proportions. Each pixel is the nearest one of the original, so flat colors stay
 * flat.
 * @param size of the longer side, in pixels
 */
export function scaled(picture: Picture, size: number): Picture {
  const factor = size / Math.max(picture.width, picture.height);
  if (factor === 1) return picture;
  const width = Math.max(1, Math.round(picture.width * factor));
  const height = Math.max(1, Math.round(picture.height * factor));
  const { byteOffset, byteLength } = picture.data;
  const from = new Uint32Array(picture.data.buffer, byteOffset, byteLength / BYTES_A_PIXEL);
  const pixels = new Uint32Array(width * height);
  const columns = Int32Array.from({ length: width }, (_, x) =>
    Math.floor(((x + 0.5) * picture.width) / width),
  );
  for (let y = 0; y < height; y++) {
    const row = Math.floor(((y + 0.5) * picture.height) / height) * picture.width;
    for (let x = 0; x < width; x++) pixels[y * width + x] = from[row + columns[x]];
  }
  return { width, height, data: new Uint8Array(pixels.buffer) };
}

/** A picture as a part of an observation. */
function imagePart(picture: Picture): ImagePart {
  const { width, height } = picture;
  return { type: 'image', mime: 'image/png', data: encodePng(picture).toString('base64'), width, height };
}

/** The part at another size; a part that is not a PNG is returned unchanged. */
function scaledPart(part: ImagePart, size: number): ImagePart {
  if (part.width === undefined || part.height === undefined) return part;
  if (Math.max(part.width, part.height) === size) return part;
  const { width, height, data } = pngjs().PNG.sync.read(Buffer.from(part.data, 'base64'));
  // Copied to memory aligned to a pixel.
  return imagePart(scaled({ width, height, data: Uint8Array.from(data) }, size));
}
