import { readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { isLoopback as isLoopbackHost } from '../../shared/http/addresses.ts';
import { HubError } from './hub-error.ts';

/** Address of the hub and folder of its cache, from the variables that Python's huggingface_hub reads. */
export interface HubSettings {
  /** Address without a slash at its end. */
  readonly endpoint: string;
  /** Folder that programs of all languages share. */
  readonly cache: string;
  readonly token: string | undefined;
  /** Nothing is asked of the network. */
  readonly offline: boolean;
}

const PUBLIC_HUB = 'https://huggingface.co';

type Environment = Readonly<Record<string, string | undefined>>;

/**
 * `HF_ENDPOINT`, `HF_HUB_CACHE` or `HF_HOME`, `HF_TOKEN` or the token file, `HF_HUB_OFFLINE`.
 * @throws HubError for an endpoint that is neither https nor on this machine
 */
export function hubSettings(env: Environment = process.env): HubSettings {
  const home = env.HF_HOME ?? join(env.XDG_CACHE_HOME ?? join(homedir(), '.cache'), 'huggingface');
  const endpoint = (env.HF_ENDPOINT || PUBLIC_HUB).replace(/(?<!\/)\/+$/, '');
  const url = URL.parse(endpoint);
  if (url === null || !(url.protocol === 'https:' || (url.protocol === 'http:' && isLoopback(url)))) {
    throw new HubError(
      `HF_ENDPOINT must be an https address, or http on this machine, got ${JSON.stringify(endpoint)}`,
    );
  }
  return {
    endpoint,
    cache: env.HF_HUB_CACHE ?? env.HUGGINGFACE_HUB_CACHE ?? join(home, 'hub'),
    token: isOn(env.HF_HUB_DISABLE_IMPLICIT_TOKEN) ? undefined : tokenOf(env, home),
    offline: isOn(env.HF_HUB_OFFLINE) || isOn(env.TRANSFORMERS_OFFLINE),
  };
}

function tokenOf(env: Environment, home: string): string | undefined {
  const given = (env.HF_TOKEN ?? env.HUGGING_FACE_HUB_TOKEN)?.trim();
  if (given) return given;
  const file = env.HF_TOKEN_PATH ?? join(home, 'token');
  try {
    return readFileSync(file, 'utf8').trim() || undefined;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw new HubError(`the token file ${file} cannot be read: ${(error as Error).message}`);
  }
}

function isOn(value: string | undefined): boolean {
  return value !== undefined && ['1', 'ON', 'YES', 'TRUE'].includes(value.toUpperCase());
}

/** True if an address is of this machine. */
export function isLoopback({ hostname }: URL): boolean {
  return isLoopbackHost(hostname.replace(/^\[|\]$/g, ''));
}

/** True if a hub at `endpoint` may send a client there: to https, or from this machine to this machine. */
export function mayRedirect(endpoint: string, target: URL): boolean {
  if (target.protocol === 'https:') return true;
  return target.protocol === 'http:' && isLoopback(target) && isLoopback(new URL(endpoint));
}
