import { execFileSync } from 'node:child_process';
import { renderToString } from 'preact-render-to-string';
import t from 'tap';
import { html } from '../../components/html.ts';
import { AskHere } from './turn-panel.ts';

const ENTITIES: { readonly [name: string]: string } = {
  '&quot;': '"',
  '&amp;': '&',
  '&lt;': '<',
  '&gt;': '>',
};
const commands = (props: object) => {
  const text = renderToString(html`<${AskHere} trainer="ragen" folder="'runs/a b'" ...${props} />`);
  return [...text.matchAll(/<code>([^<]*)<\/code>/g)].map(([, code]) =>
    code.replaceAll(/&\w+;/g, name => ENTITIES[name] ?? name),
  );
};

t.test('the commands serve the run, and ask it with the tokens of the turn', t => {
  const [serve, ask] = commands({ prompt: [5, 1, 3], length: 40, end: `it's </end>` });
  t.equal(serve, "ragen serve 'runs/a b'");
  const words = execFileSync('sh', ['-c', ask.replace('curl', "printf '%s\\n'")], { encoding: 'utf8' })
    .trim()
    .split('\n');
  t.match(words[1], /\/v1\/completions$/);
  t.same(JSON.parse(words.at(-1)!), { prompt: [5, 1, 3], max_tokens: 40, n: 4, stop: ["it's </end>"] });
  t.end();
});

t.test('the commands ask the chosen checkpoint', t => {
  const [serve] = commands({ prompt: [5], length: 40, step: 12 });
  t.equal(serve, "ragen serve 'runs/a b'/checkpoints/step-000012");
  t.end();
});

t.test('a response that was cut off has no end, a short one some room, a long prompt no command', t => {
  const [, ask] = commands({ prompt: [5], length: 2 });
  t.match(ask, '{"prompt":[5],"max_tokens":16,"n":4}');
  t.same(commands({ prompt: new Array(8193).fill(7), length: 2 }), []);
  t.end();
});
