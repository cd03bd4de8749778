import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { lacksPython, PYTHON_MS, runPython } from '../../../test/python.test-data.ts';
import { scratchConfig } from '../config.ts';
import { configToJson } from '../config-json.ts';
import { buildByteTokenizer, buildWordTokenizer, saveTokenizer } from './builder.ts';
import { ChatTemplate } from './chat-template.ts';

for (const [kind, build] of [
  ['words', buildWordTokenizer],
  ['bytes', buildByteTokenizer],
] as const) {
  t.test(
    `AutoTokenizer of transformers encodes with the ${kind} of a model from scratch`,
    { skip: lacksPython('transformers'), timeout: PYTHON_MS },
    async t => {
      const folder = join(t.testdir(), 'scratch');
      await mkdir(folder);
      const tokenizer = build(['<answer>', '</answer>', 'Up', 'Down', ' ', '||', '#', '☃', '北 é', 'é']);
      await saveTokenizer(tokenizer, folder);
      const config = scratchConfig({ vocabularySize: tokenizer.vocabularySize, hiddenSize: 16, heads: 2 });
      await writeFile(join(folder, 'config.json'), JSON.stringify(configToJson(config)));
      const texts = [
        '<answer>Up || Down</answer>',
        '###',
        'Up?Down',
        '|||',
        'é☃ \n\t 👍',
        '<eos>Upper<answer',
      ];
      await writeFile(join(folder, 'input.json'), JSON.stringify({ texts }));
      const program = new URL('../../../bench/families/reference.py', import.meta.url);
      const expected = texts.map(text => tokenizer.encode(text));
      t.same(await runPython(program, 'encode', folder), [expected]);
    },
  );
}

t.test('strip, lstrip and rstrip of a chat template remove the same as in Python', async t => {
  const render = (source: string, content: string) =>
    new ChatTemplate(source, {}).render([{ role: 'user', content }], { addGenerationPrompt: false });
  const history = "{{ messages[0].content.split('</think>')[-1].lstrip('\\n') }}";
  t.equal(render(history, '<think>why</think>\n\n  indented\n'), '  indented\n', 'as Qwen3 shows history');
  const both = "{{ '<' + messages[0].content.rstrip('\\n').split('<think>')[0].strip('xy') + '>' }}";
  t.equal(render(both, 'xyz yx\n\n'), '<z >');
  t.equal(render('<{{ messages[0].content.strip() }}>', ' \ufeff\x1f é \n'), '<\ufeff\x1f é>');
  t.throws(() => render('{{ (1).strip() }}', ''), /calls strip on what is not text/);
});
