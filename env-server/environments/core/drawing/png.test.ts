import { PNG } from 'pngjs';
import t from 'tap';
import { Canvas } from './painting.ts';
import { encodePng, pictureUrl } from './png.ts';

t.test('pictures of few and of many colors, and transparent ones, survive encoding', async t => {
  const noise = (colors: number, alpha: number) => {
    const data = new Uint8Array(4 * 40 * 30);
    for (let i = 0; i < 1200; i++) {
      const color = (Math.floor(i / 80) * 7919 + i * i) % colors;
      data.set([color & 255, color >> 8, 99, i % 2 ? alpha : 255], 4 * i);
    }
    return { width: 40, height: 30, data };
  };
  for (const picture of [noise(256, 255), noise(9, 255), noise(257, 255), noise(2000, 255), noise(4, 77)]) {
    const { data } = PNG.sync.read(encodePng(picture));
    t.ok(data.equals(picture.data));
  }
});

t.test('a picture survives as PNG and as data URL', async t => {
  const canvas = new Canvas(7, 3, 0x204060);
  canvas.disc(3, 1, 1, 0xff8000);
  const file = encodePng(canvas);
  const { width, height, data } = PNG.sync.read(file);
  t.same([width, height], [7, 3]);
  t.ok(data.equals(canvas.data));
  const [head, body] = pictureUrl(canvas).split(',');
  t.equal(head, 'data:image/png;base64');
  t.ok(Buffer.from(body, 'base64').equals(file));
});
