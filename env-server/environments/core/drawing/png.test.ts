import { PNG } from 'pngjs';
import t from 'tap';
import { Canvas } from './painting.ts';
import { encodePng, pictureUrl } from './png.ts';

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
