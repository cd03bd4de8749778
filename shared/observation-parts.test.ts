import t from 'tap';
import { partsOfText, textOfParts, withoutImages } from './observation-parts.ts';

const PIXEL = 'iVBORw0KGgoAAAANSUhEUgAAAAIAAAADCAYAAAC56t6BAAAAC0lEQVR42mNgAAIAAAUAAen63NgAAAAASUVORK5CYII=';
const image = { type: 'image', mime: 'image/png', data: PIXEL, width: 2, height: 3 } as const;

t.test('text with pictures becomes parts, and parts that text', async t => {
  const text = `before\ndata:image/png;base64,${PIXEL}\nbetween\ndata:image/gif;base64,R0lGOD==`;
  const parts = partsOfText(text);
  t.same(parts, [
    { type: 'text', text: 'before' },
    image,
    { type: 'text', text: 'between' },
    { type: 'image', mime: 'image/gif', data: 'R0lGOD==' },
  ]);
  t.equal(textOfParts(parts), text);
  t.equal(withoutImages(text), 'before\n[image/png 2x3]\nbetween\n[image/gif]');
});

t.test('text without pictures is one part; what only looks like a picture has no size', async t => {
  t.same(partsOfText('a\nb'), [{ type: 'text', text: 'a\nb' }]);
  t.same(partsOfText('data:image/png;base64,AAAA'), [{ type: 'image', mime: 'image/png', data: 'AAAA' }]);
  t.equal(withoutImages('data:image/png;base64,'), 'data:image/png;base64,');
  const long = `data:image/png;base64,${'A'.repeat(1_000_000)}`;
  t.equal(withoutImages(long), '[image/png]');
});
