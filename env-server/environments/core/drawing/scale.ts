import type { Json } from '../../../../shared/json.ts';
import {
  type ImagePart,
  isParts,
  type ObservationPart,
  partsOfText,
} from '../../../../shared/observation-parts.ts';
import type { AnyEnvironment, Picture } from '../environment.ts';
import { encodePng, pngjs } from './png.ts';

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
const BYTES_A_PIXEL = 4;

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
