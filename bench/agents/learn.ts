import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createApp } from '../../env-server/app.ts';
import { bandit } from '../../env-server/environments/bandit/bandit.ts';
import { createRegistry } from '../../env-server/environments/registry.ts';
import { validateConfig } from '../../shared/config.ts';
import { openServers } from '../../trainer/client/servers.ts';
import { WarmStart } from '../../trainer/config/sections/training.ts';
import type { Demonstration } from '../../trainer/data/demonstrations.ts';
import { BANDIT, chatTokenizer, scriptedPolicy } from '../../trainer/gateway/gateway.test-data.ts';
import { Gateway, programAgent } from '../../trainer/gateway/gateway.ts';
import { scratchConfig } from '../../trainer/models/config.ts';
import type { Tokenizer } from '../../trainer/models/tokenizer/tokenizer.ts';
import { LocalPolicy } from '../../trainer/policy/local-policy.ts';
import { Collector } from '../../trainer/rollout/collection/collector.ts';
import { describeTags } from '../../trainer/rollout/described-tag.ts';
import { type EpisodeSample, samplesOf } from '../../trainer/rollout/episode.ts';
import { planGroups } from '../../trainer/rollout/tag.ts';
import { tinySettings, trainingRows, trainTiny } from '../../trainer/training/runs.test-data.ts';
import { warmStart } from '../../trainer/training/supervised/warm-start.ts';
import { CALL_CLOSING, CALL_OPENING, type ExampleAgent } from './examples.ts';

/** Words of the prompts besides those of the environment. */
const WORDS = [
  'user\n',
  'assistant\n',
  'system\n',
  'tools\n',
  'tool\n',
  'step',
  'plan',
  'act',
  ' or ',
  CALL_OPENING,
  CALL_CLOSING,
];
const CONTEXT = 192;
const FIRST_SEED = 1_000_000;
const WORKERS = 3;

interface Arms {
  readonly low: string;
  readonly high: string;
}

export interface LearnOptions {
  readonly iterations: number;
  /** Groups of an iteration, and episodes of a group. */
  readonly groups: number;
  readonly groupSize: number;
  /** Episodes of an update. */
  readonly miniBatch: number;
  /** Episodes of the warm start, and passes over them. */
  readonly demonstrations: number;
  readonly epochs: number;
  readonly learningRate: number;
  /** The arms of all episodes; absent: the pairs of the environment. */
  readonly arms?: Arms;
}

export interface Learned {
  /** Share of episodes with the better arm, by iteration. */
  readonly success: readonly number[];
  /** Training samples of an episode. */
  readonly samples: number;
  /** Sampled tokens that a later prompt held in other ids. */
  readonly retokenized: number;
  readonly seconds: number;
}

/**
 * Trains a small policy with a program as agent on Bandit with a better arm that always pays: from a warm start on the
 * program's own prompts, after which it names either arm.
 */
export async function learnAgent(agent: ExampleAgent, options: LearnOptions): Promise<Learned> {
  const folder = mkdtempSync(join(tmpdir(), 'ragen-agents-'));
  const { server } = await createApp(
    { logLevel: 'silent' },
    options.arms && { registry: createRegistry([pinnedBandit(options.arms)]) },
  );
  try {
    const url = await server.listen({ host: '127.0.0.1', port: 0 });
    const model = join(folder, 'model');
    await makePolicy(url, agent, options, model);
    const settings = tinySettings(url, folder, 'run', {
      tags: {
        [BANDIT.name]: {
          env_id: BANDIT.environmentId,
          config: BANDIT.config,
          max_turn: 1,
          max_actions_per_turn: 1,
          max_actions_per_traj: 1,
        },
      },
      train_tags: [BANDIT.name],
      policy: { init: model, context: CONTEXT, value_head: false },
      rollout: {
        env_groups: options.groups,
        group_size: options.groupSize,
        response_length: 24,
        prompt: 'chat',
        agent: {
          command: [...agent.command],
          workers: agent.stays ? WORKERS : 0,
          processes: WORKERS,
          timeout_s: 60,
        },
      },
      algorithm: { mini_batch_size: options.miniBatch },
      optimizer: { learning_rate: options.learningRate },
      training: { steps: options.iterations },
    });
    const began = performance.now();
    const rows = trainingRows(await trainTiny(settings));
    return {
      success: rows.map(row => row['train/success']),
      samples: rows[0]['gateway/samples'],
      retokenized: Math.max(...rows.map(row => row['gateway/retokenized_tokens'])),
      seconds: (performance.now() - began) / 1000,
    };
  } finally {
    await server.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Bandit with the same two arms in every episode, in random order. */
function pinnedBandit(arms: Arms): typeof bandit {
  return { ...bandit, reset: (config, rng) => bandit.reset(config, rng, { ...arms }) };
}

/** Writes a policy that answers this program's prompts with either arm. */
async function makePolicy(
  url: string,
  agent: ExampleAgent,
  options: LearnOptions,
  folder: string,
): Promise<void> {
  const { samples, vocabulary, spelling } = await demonstrate(url, agent, options.demonstrations);
  const tokenizer = chatTokenizer([...WORDS, ...vocabulary]);
  const policy = await LocalPolicy.create({
    model: scratchConfig({
      vocabularySize: tokenizer.vocabularySize,
      hiddenSize: 64,
      layers: 2,
      heads: 2,
      keyValueHeads: 2,
      intermediateSize: 128,
      maxPositions: CONTEXT,
      ropeTheta: 10_000,
      initializerRange: 0.05,
      eosTokenId: tokenizer.eosTokenId,
      padTokenId: tokenizer.padTokenId,
    }),
    seed: 1,
    valueHead: false,
    workers: 1,
    files: tokenizer.files,
  });
  try {
    const demonstrations = samples.map(sample => respelled(sample, spelling, tokenizer));
    const settings = validateConfig(
      { epochs: options.epochs, learning_rate: 3e-3, warmup_steps: 10, weight_decay: 0 },
      WarmStart,
    );
    await warmStart(policy, demonstrations, settings, { seed: 1, signal: new AbortController().signal });
    await policy.save(folder);
  } finally {
    await policy.close();
  }
}

/** Lets the program play with a model that names an arm at random. */
async function demonstrate(url: string, agent: ExampleAgent, episodes: number) {
  const spelling = chatTokenizer();
  const servers = openServers([{ url }]);
  const random = scriptedPolicy(spelling, (prompt, seed) => {
    const [, first, second] = /\b(\w+) or (\w+)/.exec(prompt) ?? [];
    return agent.write(seed % 2 === 0 ? first : second);
  });
  const gateway = await Gateway.open(
    {
      command: agent.command,
      workers: agent.stays ? WORKERS : 0,
      processes: WORKERS,
      timeoutMs: 60_000,
      maxCalls: 8,
      maxTokens: 100_000,
      verifierKey: undefined,
    },
    random,
    spelling,
  );
  try {
    const [described] = await describeTags(servers, [BANDIT]);
    const collector = new Collector({
      servers,
      tags: [described],
      prompt: 'chat',
      response: { responseLength: 512, think: false },
      concurrency: 32,
    });
    const played = await collector.collect(
      planGroups({ tags: [{ tag: BANDIT.name, groups: episodes }], groupSize: 1, firstSeed: FIRST_SEED }),
      {
        agent: programAgent(gateway, 2, () => {}),
        sampling: { temperature: 1, topK: 0, topP: 1 },
        samplingSeed: 1,
      },
    );
    const vocabulary = described.description.vocabulary ?? [];
    return { samples: played.episodes.flatMap(samplesOf), vocabulary, spelling };
  } finally {
    await gateway.close();
    await servers.close();
  }
}

/** A sequence in the ids of another tokenizer, prompts and responses each by themselves. */
function respelled({ tokenIds, lossMask }: EpisodeSample, from: Tokenizer, to: Tokenizer): Demonstration {
  const ids: number[] = [];
  const mask: number[] = [];
  for (let start = 0; start < tokenIds.length; ) {
    let end = start;
    while (end < tokenIds.length && lossMask[end] === lossMask[start]) end++;
    const part = to.encode(from.decode(tokenIds.subarray(start, end)));
    ids.push(...part);
    mask.push(...part.map(() => lossMask[start]));
    start = end;
  }
  return { tokenIds: Int32Array.from(ids), lossMask: Uint8Array.from(mask) };
}
