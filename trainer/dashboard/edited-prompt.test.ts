import t from 'tap';
import { editedPrompt } from './checkpoint-route.ts';

/** Tokens 1, 2, 3, … with these texts. */
const change = (texts: readonly string[], edited: string) =>
  editedPrompt(
    texts.map((_, i) => i + 1),
    texts,
    edited,
  );
const GO = ['<user>', 'go', ' left', ' now', '\n', '<end>'];

t.test('an unchanged text keeps every token', async t => {
  t.same(change(GO, GO.join('')), { before: [1, 2, 3, 4, 5, 6], text: '', after: [] });
  t.same(change(['�', '�', 'x'], '��x'), { before: [1, 2, 3], text: '', after: [] }, 'bytes of a character');
});

t.test('only the changed tokens are encoded again', async t => {
  t.same(change(GO, '<user>go right now\n<end>'), { before: [1, 2], text: ' right', after: [4, 5, 6] });
  t.same(change(GO, '<user>go now\n<end>'), { before: [1, 2], text: '', after: [4, 5, 6] }, 'text taken out');
  t.same(change(GO, `${GO.join('')}<user>Why?`), {
    before: [1, 2, 3, 4, 5, 6],
    text: '<user>Why?',
    after: [],
  });
  t.same(change(GO, `Hello. ${GO.join('')}`), { before: [], text: 'Hello. ', after: [1, 2, 3, 4, 5, 6] });
  t.same(change(GO, ''), { before: [], text: '', after: [] });
  t.same(change(['a', 'a', 'a'], 'a'), { before: [1], text: '', after: [] }, 'no token counts twice');
});

t.test('a word that grows or shrinks is encoded as a whole, to a limit', async t => {
  t.same(change(['I', ' hap', 'py', ' now'], 'I happyish now'), {
    before: [1],
    text: ' happyish',
    after: [4],
  });
  t.same(change(['I', ' am', ' un', 'happy'], 'I am unhappy'), { before: [1, 2, 3, 4], text: '', after: [] });
  t.same(change(['fo', 'o', ' bar', 'baz', '!'], 'foobaz!'), { before: [], text: 'foobaz', after: [5] });
  t.same(change(['x', 'happy', ' a'], 'xunhappy a'), { before: [], text: 'xunhappy', after: [3] });
  const letters = Array.from({ length: 100 }, () => 'a');
  const { before, text, after } = change(letters, `${letters.join('')}b`);
  t.same([before.length, text, after], [92, 'aaaaaaaab', []]);
  t.same(
    change(['<a>', 'x', '', 'y'], '<a>xzy'),
    { before: [1, 2, 3], text: 'zy', after: [] },
    'a token without text',
  );
});

t.test('line ends of a text field change no token', async t => {
  const texts = ['a\r\n', 'b\r', '\n', 'c\r', 'd'];
  t.same(change(texts, 'a\nb\nc\nd'), { before: [1, 2, 3, 4, 5], text: '', after: [] });
  t.same(change(texts, texts.join('')), { before: [1, 2, 3, 4, 5], text: '', after: [] });
  t.same(change(texts, 'a\nb\nc\ne'), { before: [1, 2, 3, 4], text: 'e', after: [] });
});

t.test('the time grows with the length of the prompt alone', async t => {
  const microseconds = (count: number) => {
    const texts = Array.from({ length: count }, (_, i) => ` word${i % 7}`);
    const whole = texts.join('');
    const began = process.cpuUsage();
    const { before, after } = change(texts, `${whole.slice(0, 3 * count)}!${whole.slice(3 * count)}`);
    const { user, system } = process.cpuUsage(began);
    t.equal(before.length + after.length, count);
    return user + system;
  };
  microseconds(20_000);
  const [short, long] = [microseconds(20_000), microseconds(200_000)];
  t.ok(long < 60 * (short + 1000), `${short} and ${long} µs`);
});
