import { PNG } from 'pngjs';
import type { Picture } from '../environments/environment.ts';

/** A picture as a PNG file. */
export function encodePng(picture: Picture): Buffer {
  const png = new PNG({ width: picture.width, height: picture.height });
  png.data = Buffer.from(picture.data.buffer, picture.data.byteOffset, picture.data.byteLength);
  return PNG.sync.write(png);
}
