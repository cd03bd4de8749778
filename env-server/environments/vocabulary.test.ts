import t from 'tap';
import { playing } from '../../test/environment-contract.test-data.ts';
import { BUILT_IN } from './registry.ts';

/** First text that a word-level tokenizer of these words cannot write; '' where it can write all. */
function unwritten(text: string, words: readonly string[]): string {
  const ordered = [...new Set([...words, ' ', '\n'])].sort((a, b) => b.length - a.length);
  let at = 0;
  while (at < text.length) {
    const word = ordered.find(one => text.startsWith(one, at));
    if (word === undefined) return text.slice(at, at + 20);
    at += word.length;
  }
  return '';
}

t.test('a vocabulary writes what reference policies see and do', async t => {
  let checked = 0;
  for (const environment of BUILT_IN) {
    const play = playing(environment);
    const { vocabulary, actions = [] } = environment.describe(play.config());
    if (!vocabulary) continue;
    checked++;
    for (const policy of Object.keys(environment.references ?? {})) {
      for (let seed = 0; seed < 3; seed++) {
        let state = await play.reset({}, {}, seed);
        for (let step = 0; step < 12; step++) {
          t.equal(unwritten(play.text(state), vocabulary), '', `${environment.spec.id} is seen`);
          const { result } = await play.finish(state, policy, 1);
          if (!result || result.terminated || result.truncated) break;
          state = result.state;
        }
      }
    }
    for (const name of actions) t.ok(vocabulary.includes(name), `${environment.spec.id} has ${name}`);
    t.equal(
      unwritten(String(environment.spec.exampleAction), vocabulary),
      '',
      `${environment.spec.id} is played`,
    );
  }
  t.ok(checked >= 8, `${checked} environments have a vocabulary`);
});
