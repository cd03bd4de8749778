import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { camelized } from '../../../shared/camelized.ts';
import { closing } from '../../../shared/closing.ts';
import { hasValueHead, secretOf } from '../../config/derived.ts';
import type { EndpointSection } from '../../config/sections/policy.ts';
import type { RunSettings } from '../../config/settings.ts';
import { Completions, type EndpointUsage } from '../../generation/endpoint/completions.ts';
import { parseModelName } from '../../hub/cache.ts';
import { playedPrecision } from '../../models/frozen-weights.ts';
import { VALUE_HEAD_FILE } from '../../policy/checkpoint/checkpoint.ts';
import {
  ADAPTER_CONFIG_FILE,
  CONFIG_FILE,
  isAdapterFolder,
  isModelFolder,
} from '../../policy/checkpoint/model-folder.ts';
import { TINKER_FILE } from '../../policy/tinker/checkpoint.ts';
import { type Agent, RANDOM, referenceAgent } from '../../rollout/agents/agent.ts';
import { hasRandomPlayer } from '../../rollout/described-tag.ts';
import type { Player as EpisodePlayer } from '../../rollout/episode-agent.ts';
import { findServerSoon } from '../../training/setup/find-server.ts';
import { openPrograms } from '../../training/setup/open-generation.ts';
import { openPolicy, openTinker } from '../../training/setup/open-policy.ts';
import {
  openRunContext,
  openTextRunContext,
  type RunContext,
  sampledAgent,
  type TextRunContext,
} from '../../training/setup/run-context.ts';
import { type HubModelOptions, localModel } from '../hub/local-models.ts';

/** The player of every run: its newest checkpoint. */
export const CHECKPOINT = 'checkpoint';
const ENDPOINT = 'endpoint';

/** A player, and its sampling modes. */
export interface Player {
  readonly context: TextRunContext;
  /** Folder of its weights; absent for players without local weights. */
  readonly weights?: string;
  readonly modes: readonly PlayerMode[];
  /** Usage of an endpoint so far. */
  readonly usage?: () => EndpointUsage;
  close(): Promise<void>;
}

interface PlayerMode {
  /** `greedy`, `temperature 0.5`, or `reference` for players without sampling. */
  readonly name: string;
  readonly agent: EpisodePlayer;
  readonly temperature: number;
  /** True if attempts at a level can differ. */
  readonly varied: boolean;
}

export interface PlayerParts {
  readonly settings: RunSettings;
  /** Newest checkpoint of the evaluated run. */
  readonly checkpoint: string | undefined;
  readonly note: (text: string) => void;
  readonly stop: AbortSignal;
}

/** True if the named player has weights, so that the settings of the policy must fit. */
export async function hasWeights(name: string): Promise<boolean> {
  return name === CHECKPOINT || parseModelName(name) !== undefined || (await isPlayerFolder(name));
}

/**
 * Opens a player: `checkpoint`, a checkpoint's folder, `endpoint`, or a reference policy.
 * @throws Error listing the valid players
 */
export async function openPlayer(name: string, parts: PlayerParts): Promise<Player> {
  if (name === CHECKPOINT) {
    if (parts.checkpoint === undefined) {
      throw new Error(
        'there is no checkpoint; give a run folder, name a model with policy.init=<folder>, or a player with --policy random|optimal|endpoint|<folder>',
      );
    }
    return policyPlayer(parts.checkpoint, parts);
  }
  if (await isPlayerFolder(name)) return policyPlayer(name, parts);
  return name === ENDPOINT ? endpointPlayer(parts) : referencePlayer(name, parts);
}

/** Opens the player of a folder with weights. */
export async function policyPlayer(
  folder: string,
  { settings, note, stop }: Omit<PlayerParts, 'checkpoint'>,
): Promise<Player & { readonly context: RunContext }> {
  await findServerSoon(settings, note, stop);
  await using opened = new AsyncDisposableStack();
  const context = opened.use(closing(await openRunContext(settings, folder, note, stop)));
  // A player is the content of its folder: an adapter brings its settings, its base is stored as in training, and a
  // critic does not play.
  const valued = hasValueHead(settings) && existsSync(join(folder, VALUE_HEAD_FILE));
  const base_precision = playedPrecision(settings.policy.base_precision);
  const alone = { lora: null, critic: null, value_head: valued, base_precision };
  const own = { ...settings, policy: { ...settings.policy, ...alone } };
  const stored = (await isAdapterFolder(folder)) ? settings.policy.lora?.quantization : null;
  const open = existsSync(join(folder, TINKER_FILE))
    ? openTinker(settings, context, folder, { note, generationOnly: true })
    : openPolicy(own, context, folder, { generationOnly: true, quantization: stored ?? undefined });
  const policy = await open;
  opened.use(closing(policy));
  const programs = await openPrograms(settings, context, { policy, generator: policy }, note);
  if (programs) opened.use(closing(programs));
  const modes = sampledModes(programs?.agent ?? sampledAgent(context, policy), settings);
  return { context, weights: folder, modes, close: closeOf(opened) };
}

async function endpointPlayer({ settings, note, stop }: PlayerParts): Promise<Player> {
  const { endpoint, rollout } = settings;
  if (!endpoint) {
    throw new Error(
      '--policy endpoint needs an address and a model, e.g. endpoint.url=http://127.0.0.1:8000/v1 endpoint.model=Qwen/Qwen2.5-0.5B-Instruct',
    );
  }
  if (rollout.prompt !== 'chat') {
    throw new Error('--policy endpoint: a chat model needs whole sentences: rollout.prompt=chat');
  }
  await findServerSoon(settings, note, stop);
  await using opened = new AsyncDisposableStack();
  const context = opened.use(closing(await openTextRunContext(settings, note, stop)));
  const completions = opened.use(closing(new Completions(clientSettings(endpoint))));
  const modes = sampledModes(endpointAgent(completions), settings);
  return { context, modes, usage: () => completions.usage, close: closeOf(opened) };
}

async function referencePlayer(name: string, { settings, note, stop }: PlayerParts): Promise<Player> {
  await findServerSoon(settings, note, stop);
  await using opened = new AsyncDisposableStack();
  const context = opened.use(closing(await openTextRunContext(settings, note, stop)));
  for (const described of context.tags) {
    const { tag, references } = described;
    if (name === RANDOM && !hasRandomPlayer(described)) {
      throw new Error(
        `--policy random: ${tag.environmentId} names no actions to play at random; add \`actions\` to its definition`,
      );
    }
    if (name === RANDOM || references.includes(name)) continue;
    throw new Error(
      `--policy ${name}: no folder with a ${CONFIG_FILE} or ${ADAPTER_CONFIG_FILE}, and ${tag.environmentId} has no such reference policy; ` +
        `it has ${[RANDOM, ...references.filter(known => known !== RANDOM)].join(', ')}`,
    );
  }
  const agent = referenceAgent({ policy: name, randomCount: 'full' });
  const mode = { name: 'reference', agent, temperature: 0, varied: name === RANDOM };
  return { context, modes: [mode], close: closeOf(opened) };
}

/** Closes what was opened, the last first; the stack itself then closes nothing. */
function closeOf(opened: AsyncDisposableStack): () => Promise<void> {
  const moved = opened.move();
  return () => moved.disposeAsync();
}

/** Greedy decoding, and validation sampling where that differs. */
function sampledModes(agent: EpisodePlayer, { validation: { temperature } }: RunSettings): PlayerMode[] {
  const greedy = { name: 'greedy', agent, temperature: 0, varied: false };
  if (temperature === 0) return [greedy];
  return [greedy, { name: `temperature ${temperature}`, agent, temperature, varied: true }];
}

function clientSettings({ price_per_million: _, api_key_env, timeout_s, ...section }: EndpointSection) {
  const apiKey = secretOf('endpoint.api_key_env', api_key_env);
  return { ...camelized(section), apiKey, timeoutMs: 1000 * timeout_s };
}

/**
 * Each name as {@link openPlayer} takes it, with hub models replaced by their local folders.
 * @throws HubError
 */
export async function playerFolders(names: readonly string[], options: HubModelOptions): Promise<string[]> {
  const folders: string[] = [];
  for (const name of names) folders.push((await localModel(name, options)).folder);
  return folders;
}

async function isPlayerFolder(name: string): Promise<boolean> {
  return existsSync(join(name, TINKER_FILE)) || (await isModelFolder(name));
}

/** Answers with a chat model behind an endpoint: whole responses, unless the endpoint continues open messages. */
function endpointAgent(endpoint: Pick<Completions, 'complete' | 'primes'>): Agent {
  return {
    async respond({ messages, sampling, seed, prime }) {
      const { text, finishReason } = await endpoint.complete({
        messages: messages(),
        prime,
        maxTokens: sampling.maxNewTokens,
        sampling,
        seed,
        stopStrings: sampling.stopStrings ?? [],
      });
      return { text, rawResponse: endpoint.primes ? prime + text : text, finishReason };
    },
    release() {},
  };
}
