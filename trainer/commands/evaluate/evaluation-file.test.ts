import t from 'tap';
import { evaluateCommand } from './evaluate.ts';

t.test('the command is the one that ran, as a shell takes it, without tokens', async t => {
  t.equal(
    evaluateCommand('runs/a b', [], { policy: ['checkpoint'], attempts: 1 }),
    "evaluate 'runs/a b' --policy checkpoint",
  );
  const overrides = [
    'validation.episodes=4',
    'endpoint={url: "http://x", model: y}',
    'servers.0.token=geheim',
    'servers=[{url: http://s, token: geheim}, {url: http://u, token: null}]',
  ];
  t.equal(
    evaluateCommand('runs/a', overrides, { policy: ['checkpoint', 'random'], attempts: 8 }),
    [
      'evaluate runs/a validation.episodes=4',
      `'endpoint={url: "http://x", model: y}'`,
      "'servers.0.token=***'",
      `'servers=[{"url":"http://s","token":"***"},{"url":"http://u","token":null}]'`,
      '--policy checkpoint --policy random --attempts 8',
    ].join(' '),
  );
});
