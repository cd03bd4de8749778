import t from 'tap';
import {
  Canvas,
  CanvasRegion,
  cellSize,
  type PagePart,
  paintPage,
  printable,
  textWidth,
  wrap,
} from './painting.ts';

/** The canvas as rows of `#` where painted. */
function shape(canvas: Canvas): string[] {
  return Array.from({ length: canvas.height }, (_, y) =>
    Array.from({ length: canvas.width }, (_, x) =>
      canvas.data[4 * (y * canvas.width + x)] ? '#' : '.',
    ).join(''),
  );
}

t.test('rectangles and circles are clipped to the canvas', async t => {
  const canvas = new Canvas(4, 3, 0x000000);
  canvas.fill(-2, 1, 4, 10, 0xff8040);
  t.same(shape(canvas), ['....', '##..', '##..']);
  t.same([...canvas.data.subarray(16, 20)], [255, 128, 64, 255]);
  const round = new Canvas(5, 5, 0x000000);
  round.disc(2, 2, 2, 0xffffff);
  t.same(shape(round), ['..#..', '.###.', '#####', '.###.', '..#..']);
});

t.test('text is written in glyphs, unknown characters as a question mark', async t => {
  const canvas = new Canvas(textWidth('1L', 1), 8, 0x000000);
  canvas.text('1L', 0, 0, 1, 0xffffff);
  t.same(shape(canvas), [
    '..#...#....',
    '.##...#....',
    '..#...#....',
    '..#...#....',
    '..#...#....',
    '..#...#....',
    '.###..#####',
    '...........',
  ]);
  const unknown = new Canvas(5, 8, 0);
  unknown.text('√', 0, 0, 1, 0xffffff);
  const question = new Canvas(5, 8, 0);
  question.text('?', 0, 0, 1, 0xffffff);
  t.same(unknown.data, question.data);
});

t.test('pages wrap between words', async t => {
  t.same(wrap('one two three', 8), ['one two', 'three']);
  t.same(wrap('abcdefghij', 4), ['abcd', 'efgh', 'ij']);
  t.same(wrap('', 4), ['']);
  const short = paintPage([{ text: 'one line', look: 'text' }]);
  const long = paintPage([{ text: 'many words '.repeat(20), look: 'text' }]);
  t.ok(long.height > short.height);
  t.equal(long.data.length, 4 * long.width * long.height);
});

t.test('buttons share rows until one is full; a pressed one is filled', async t => {
  const buttons = (count: number, look: PagePart['look'] = 'button') =>
    paintPage(Array.from({ length: count }, () => ({ text: 'Buy Now', look })));
  t.equal(buttons(1).height, buttons(5).height);
  t.ok(buttons(12).height > buttons(5).height);
  const dark = ({ data }: { data: Uint8Array }) =>
    data.filter((byte, at) => at % 4 === 0 && byte < 64).length;
  t.ok(dark(buttons(1, 'pressed')) > 2 * dark(buttons(1)));
  t.equal(paintPage([{ text: 'x'.repeat(500), look: 'button' }]).height, buttons(1).height, 'shortened');
  const apart = paintPage([
    { text: 'Next >', look: 'button' },
    { text: 'B000', look: 'button', apart: true },
  ]);
  t.equal(apart.height, buttons(12).height, 'two rows');
});

t.test('accents and typographic marks are painted as their plain likeness', async t => {
  t.equal(printable('Café “Zoë” – 3 × ½…'), 'Cafe "Zoe" - 3 x 1⁄2...');
});

t.test('cells shrink where boards are large, and meet without gaps at any scale', async t => {
  t.equal(cellSize(6, 6, 40), 40);
  t.equal(cellSize(64, 64, 48), 12);
  t.equal(cellSize(64, 1000, 48), 8);
  for (const scale of [0.3, 0.77, 1.9]) {
    const canvas = new Canvas(Math.round(20 * scale), 1, 0x000000);
    const sketch = new CanvasRegion(canvas, 0, 0, scale);
    for (let x = 0; x < 20; x++) sketch.fill(x, 0, 1, 10, 0xffffff);
    t.same(shape(canvas), ['#'.repeat(canvas.width)]);
  }
});
