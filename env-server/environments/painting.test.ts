import t from 'tap';
import { Canvas, paintPage, textWidth, wrap } from './painting.ts';

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
  const short = paintPage('one line');
  const long = paintPage('many words '.repeat(20));
  t.ok(long.height > short.height);
  t.equal(long.data.length, 4 * long.width * long.height);
});
