import t from 'tap';
import { episodeOf } from './episode-record.ts';

t.test('likeliest tokens that are no lists of pairs count as none', async t => {
  const sample = { token_ids: [1, 2, 3], mask: [0, 1, 1], log_probs: [0, -1, -1], versions: [0, 1, 1] };
  const read = (top_logprobs: unknown) =>
    episodeOf({ turns: [], samples: [{ ...sample, top_logprobs }] })!.samples[0].top_logprobs;
  t.same(read([0, [5, -0.5], [6, -0.1, 7, -2]]), [0, [5, -0.5], [6, -0.1, 7, -2]]);
  t.same(read([0, [5], ['a', 'b']]), [0, 0, 0]);
  t.equal(read([0]), undefined, 'as many lists as there are tokens');
  t.equal(read({ length: 3 }), undefined);
});

t.test('an episode keeps what repeats it: its changes of chance, and what was sent', async t => {
  const turns = [{ actions: ['Up'], sent: ['Fly', 'Up'] }];
  const reseeds = [{ step: 2, dynamics_seed: 9 }, 'no change'];
  t.match(episodeOf({ turns, reseeds }), {
    turns: [{ sent: ['Fly', 'Up'] }],
    reseeds: [
      { step: 2, dynamics_seed: 9 },
      { step: 0, dynamics_seed: 0 },
    ],
  });
  t.notOk('reseeds' in episodeOf({ turns })!);
});
