import { readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { isLoopback } from '../../shared/http/addresses.ts';

/** Address of the hub and folder of its cache, from the variables of Python's huggingface_hub. */
export interface HubSettings {
  /** Address without a trailing slash. */
  readonly endpoint: string;
  /** Folder shared with programs in other languages. */
  readonly cache: string;
  readonly token: string | undefined;
  /** Uses no network. */
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
  if (
    url === null ||
    !(url.protocol === 'https:' || (url.protocol === 'http:' && isLoopback(url.hostname)))
  ) {
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

/** True if a hub at `endpoint` may redirect a client there: to https, or from this machine to this machine. */
export function mayRedirect(endpoint: string, target: URL): boolean {
  const isHere = target.protocol === 'http:' && isLoopback(target.hostname);
  return target.protocol === 'https:' || (isHere && isLoopback(new URL(endpoint).hostname));
}

/** The hub rejects a request, cannot be reached, or returns something unusable; the message has the remedy. */
export class HubError extends Error {
  override readonly name = 'HubError';
  /** HTTP status of the reply; undefined where there was none. */
  readonly status: number | undefined;

  constructor(message: string, options: ErrorOptions & { readonly status?: number } = {}) {
    super(message, options);
    this.status = options.status;
  }
}

/** The reason for a hub's refusal of a model, with the remedy. */
export function refusal(
  what: string,
  endpoint: string,
  answer: { readonly status: number; readonly code?: string; readonly text?: string },
  hasToken: boolean,
): HubError {
  const { status, code, text } = answer;
  const said = text ? ` (${text.slice(0, 300)})` : '';
  const login = hasToken
    ? 'the token in use (HF_TOKEN, or the file that `hf auth login` writes) has no access'
    : 'set HF_TOKEN to a token with access, or run `hf auth login`';
  if (code === 'GatedRepo') {
    return new HubError(
      `${what} is gated: accept its terms at ${endpoint}/${(what.split(' of ').at(-1) ?? what).split('@')[0]} with your account; ${login}${said}`,
      { status },
    );
  }
  if (status === 401 || status === 403) {
    return new HubError(
      `${endpoint} refuses ${what} with ${status}: it does not exist, or is private; ${login}${said}`,
      {
        status,
      },
    );
  }
  if (status === 404) {
    const missing = code === 'RevisionNotFound' ? 'has no such revision of' : 'has no';
    return new HubError(`${endpoint} ${missing} ${what}: check the spelling${said}`, { status });
  }
  return new HubError(`${endpoint} answers ${status} for ${what}${said}`, { status });
}

/** Accepted file names: weights without code, texts, tokenizers and templates. */
const KINDS = /\.(safetensors|json|jinja|txt|md)$|^(LICENSE|LICENCE|NOTICE)[\w.-]*$/i;
/** Weights as transformers and PEFT name them; others, such as `consolidated.safetensors`, duplicate these. */
const WEIGHTS = /^(model|adapter_model|value_head)(-\d+-of-\d+)?\.safetensors$/;
const PICKLES = /\.(bin|pt|pth|ckpt|pkl)$/i;
const CONTROL = /\p{Cc}/u;

/**
 * The files of a repository that a model is read from. Files in folders (other formats, original weights) are left out.
 * @param what the model, for errors
 * @param file the requested GGUF file
 * @throws HubError for a name that leads out of the repository, for a missing file, and where the weights are GGUF
 * files or pickles, which run code when read
 */
export function allowedFiles(names: readonly string[], what: string, file?: string): string[] {
  for (const name of names) {
    const parts = name.split('/');
    if (
      parts.some(part => part === '' || part === '.' || part === '..') ||
      /[\\:]/.test(name) ||
      CONTROL.test(name)
    ) {
      throw new HubError(
        `${what} lists the file ${JSON.stringify(name)}, which leads out of its folder: refused`,
      );
    }
  }
  const gguf = names.filter(name => /\.gguf$/i.test(name) && !name.includes('/'));
  if (file !== undefined) {
    if (names.includes(file)) return [file];
    throw new HubError(`${what} is not there; GGUF files of this repository: ${gguf.join(', ') || 'none'}`);
  }
  const taken = names.filter(
    name => !name.includes('/') && (name.endsWith('.safetensors') ? WEIGHTS.test(name) : KINDS.test(name)),
  );
  const whole = taken.some(name => name.endsWith('.safetensors'));
  if (!whole && gguf.length > 0) {
    throw new HubError(
      `${what} has its weights in GGUF files: name one behind a colon, such as :${gguf[0]} (there are ${gguf.join(', ')})`,
    );
  }
  const pickle = names.find(name => PICKLES.test(name));
  if (!whole && pickle !== undefined) {
    throw new HubError(
      `${what} has its weights in ${pickle} only, a format that runs code when it is read: choose a revision with safetensors, or convert it with transformers (save_pretrained)`,
    );
  }
  return taken;
}
