import { fileURLToPath } from 'node:url';
import t from 'tap';
import { episodeConversations } from '../commands/demonstrations.ts';
import { buildWordTokenizer } from '../models/tokenizer/builder.ts';
import { loadTokenizer } from '../models/tokenizer/load.ts';
import type { Tokenizer } from '../models/tokenizer/tokenizer.ts';
import { compactVocabulary } from '../prompts/compact.ts';
import { tokenizeConversation } from '../prompts/conversation.ts';
import type { PromptName } from '../prompts/templates.ts';
import { Collector } from '../rollout/collection/collector.ts';
import type { ContextMode } from '../rollout/context.ts';
import { type DescribedTag, describeTags, promptTask } from '../rollout/described-tag.ts';
import { CAPS, serve } from '../rollout/server.test-data.ts';
import { planGroups } from '../rollout/tag.ts';
import { demonstrate, demonstrationsOf } from './demonstrations.ts';

const QWEN = fileURLToPath(new URL('../../test/golden/models/qwen2-tiny', import.meta.url));
const plans = planGroups({ tags: [{ tag: 'Room', groups: 6 }], groupSize: 1, firstSeed: 40 });
const tag = { name: 'Room', environmentId: 'Sokoban-v0', config: { preset: 'simple' }, ...CAPS };

t.test('conversations of demonstrations become the tokens that rollouts would have made of them', async t => {
  const servers = await serve(t);
  const tags = await describeTags(servers, [tag]);
  const response = { responseLength: 40, think: true };
  const words = (described: readonly DescribedTag[]) =>
    buildWordTokenizer(compactVocabulary(described.map(one => promptTask(one, response))));
  const cases: [PromptName, Tokenizer, ContextMode, number][] = [
    ['compact', words(tags), 'full', 0],
    ['compact', words(tags), 'limited_multi_turn', 2],
    ['compact', words(tags), 'single_turn', 2],
    ['chat', await loadTokenizer(QWEN), 'full', 0],
    ['chat', await loadTokenizer(QWEN), 'limited_multi_turn', 2],
    ['chat', await loadTokenizer(QWEN), 'single_turn', 0],
  ];
  for (const [prompt, tokenizer, mode, window] of cases) {
    const context = { mode, window };
    const shared = { servers, tags, prompt, response, context, concurrency: 8 };
    const tokens = new Collector({ ...shared, tokenizer, maxSequenceLength: 8000 });
    const player = { policy: 'optimal', randomTurns: 0.3 };
    const played = await demonstrate(tokens, plans, player, 5);
    t.ok(
      played.some(({ turns }) => turns.some(({ exploratory }) => exploratory)),
      'some turns are random',
    );
    const sequences = played.flatMap(episode => demonstrationsOf(episode, 'responses'));
    const texts = new Collector(shared);
    const episodes = await demonstrate(texts, plans, player, 5);
    const conversations = episodes.flatMap(episode =>
      episodeConversations(episode, texts.prompt('Room'), context),
    );
    t.equal(conversations.length, sequences.length);
    conversations.forEach((messages, i) => {
      const { tokenIds, lossMask } = tokenizeConversation(messages, tokenizer, '<think>');
      const { length } = sequences[i].tokenIds;
      t.equal(tokenizer.decode(tokenIds.slice(0, length)), tokenizer.decode(sequences[i].tokenIds));
      t.same([...tokenIds.slice(0, length)], [...sequences[i].tokenIds], `${prompt} ${mode}`);
      t.same(
        [...lossMask.slice(0, length)],
        [...sequences[i].lossMask],
        `${prompt} ${mode}: what is learned`,
      );
    });
  }
});
