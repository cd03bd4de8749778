import t from 'tap';
import { ResponseText } from './choice.ts';

/** Token ids are bytes. */
const bytes = { decode: (ids: ArrayLike<number>) => Buffer.from(Array.from(ids)).toString('utf8') };
const textOf = (stopStrings: readonly string[] = [], includeStop = false) =>
  new ResponseText(bytes, { stopStrings, includeStop, skipSpecial: true });
const feed = (text: ResponseText, said: string): string[] =>
  [...Buffer.from(said)].map(byte => text.push([byte]));

t.test('characters of several bytes are streamed whole', async t => {
  const text = textOf();
  t.same(feed(text, 'é€'), ['', 'é', '', '', '€']);
  t.equal(text.finish(), '');
});

t.test('an incomplete last character is sent when the response ends', async t => {
  const text = textOf();
  text.push([0xe2, 0x82]);
  t.equal(text.finish(), '\uFFFD');
});

t.test('text ends before the first stop string, however tokens split it', async t => {
  const text = textOf(['</answer>', '||']);
  t.equal(feed(text, 'Up</answer>x||y').join('') + text.finish(), 'Up');
  t.equal(text.stop, '</answer>');
  const whole = textOf(['</answer>', '||']);
  t.equal(whole.push(Buffer.from('Up</answer>x')), 'Up');
});

t.test('a possible start of a stop string is held back until it is ruled out', async t => {
  const text = textOf(['stop']);
  t.same(feed(text, 'a st!'), ['a', ' ', '', '', 'st!']);
  const ended = textOf(['stop']);
  feed(ended, 'a sto');
  t.equal(ended.finish(), 'sto');
});

t.test('the stop string stays in the text on request', async t => {
  const text = textOf(['.'], true);
  t.equal(feed(text, 'One. Two').join(''), 'One.');
});
