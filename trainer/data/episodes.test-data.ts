import type { Episode, Turn } from '../rollout/episode.ts';

/** A turn for tests: nothing happened in it except what is given. */
export function turnOf(part: Partial<Turn> = {}): Turn {
  return {
    state: '',
    actionsLeft: 10,
    actions: [],
    reward: 0,
    penalty: 0,
    info: {},
    response: '',
    rawResponse: '',
    tokens: [0, 0],
    ...part,
  };
}

/** An episode for tests. */
export function episodeOf(part: Partial<Episode> = {}): Episode {
  const tokens = part.tokenIds?.length ?? 0;
  return {
    episodeId: 'e',
    environmentId: 'FrozenLake-v0',
    tag: 'Lake',
    groupId: 0,
    member: 0,
    seed: 1,
    server: '',
    turns: [],
    success: false,
    terminated: true,
    finalState: '',
    tokenIds: new Int32Array(0),
    lossMask: new Uint8Array(0),
    logProbs: new Float32Array(tokens),
    versions: new Int32Array(tokens),
    ...part,
  };
}
