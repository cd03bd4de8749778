import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { buildWordTokenizer } from '../models/tokenizer/builder.ts';
import { readExamples, splitExamples } from '../training/supervised/supervision.ts';

const tokenizer = buildWordTokenizer(['a', 'b']);
const line = (user: string, assistant: string) =>
  `${JSON.stringify({
    messages: [
      { role: 'user', content: user },
      { role: 'assistant', content: assistant },
    ],
    seed: 3,
  })}\n`;

t.test('conversations are read from several files, and those that do not fit are counted', async t => {
  const folder = t.testdir({ 'x.jsonl': line('aa', 'b') + line('aaaaa', 'bbb'), 'y.jsonl': line('a', 'bb') });
  const files = ['x.jsonl', 'y.jsonl'].map(name => join(folder, name));
  const { examples, tooLong } = readExamples(files, tokenizer, { prime: '', maxLength: 4 });
  t.same(
    examples.map(({ lossMask }) => [...lossMask]),
    [
      [0, 0, 1],
      [0, 1, 1],
    ],
  );
  t.equal(tooLong, 1);
  t.throws(
    () => readExamples(files, tokenizer, { prime: '', maxLength: 2 }),
    /none of 3 conversations fits a context of 2 tokens; the shortest has 3/,
  );
});

t.test('the last line of a file counts without a line break, too, and blank lines do not', async t => {
  const folder = t.testdir({ 'x.jsonl': `\n${line('a', 'b')}\r\n \n${line('aa', 'bb').trimEnd()}` });
  const files = [join(folder, 'x.jsonl')];
  const { examples } = readExamples(files, tokenizer, { prime: '', maxLength: 9 });
  t.same(
    examples.map(({ lossMask }) => [...lossMask]),
    [
      [0, 1],
      [0, 0, 1, 1],
    ],
  );
  writeFileSync(files[0], `\n\n${line('a', 'b')}{"messages": [`);
  t.throws(() => readExamples(files, tokenizer, { prime: '', maxLength: 9 }), /x\.jsonl:4 is not JSON/);
});

t.test('an unusable example is named with its line', async t => {
  const folder = t.testdir({});
  const refusal = (text: string) => {
    const file = join(folder, 'x.jsonl');
    writeFileSync(file, line('a', 'b') + text);
    try {
      readExamples([file], tokenizer, { prime: '', maxLength: 9 });
    } catch (error) {
      return (error as Error).message;
    }
    return '';
  };
  t.match(refusal('{"prompt":"a"}\n'), /x\.jsonl:2: .*list of `messages`/);
  t.match(
    refusal('{"messages":[{"role":"bot","content":"a"}]}\n'),
    /:2: message 0 has role "bot"; valid: system/,
  );
  t.match(refusal('{"messages":[{"role":"user"}]}\n'), /:2: message 0 has no text/);
  t.match(refusal('{"messages":[{"role":"user","content":"a","weight":2}]}\n'), /:2: message 0 has weight 2/);
  t.match(refusal(line('c', 'b')), /:2: the tokenizer cannot write "c"/);
  t.match(refusal('{"messages":\n'), /:2 is not JSON/);
  t.throws(() => readExamples(['/nowhere.jsonl'], tokenizer, { prime: '', maxLength: 9 }), /does not exist/);
});

t.test('a share is held back, the same for the same seed', async t => {
  const items = Array.from({ length: 20 }, (_, i) => i);
  const { train, validation } = splitExamples(items, 0.1, 1);
  t.equal(validation.length, 2);
  t.same(
    [...train, ...validation].sort((a, b) => a - b),
    items,
  );
  t.same(splitExamples(items, 0.1, 1), { train, validation });
  t.same(splitExamples(items, 0, 1), { train: items, validation: [] });
  t.equal(splitExamples(items, 0.001, 1).validation.length, 1);
  t.equal(splitExamples([1, 2], 1, 1).train.length, 1);
});
