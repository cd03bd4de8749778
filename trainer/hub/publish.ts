import { uploadFiles } from '@huggingface/hub';
import { EnvHttpProxyAgent, fetch } from 'undici';
import { mayRedirect } from './addresses.ts';
import { HubClient, type HubClientOptions, PassingError } from './hub-client.ts';
import { HubError } from './hub-error.ts';
import type { HubSettings } from './hub-settings.ts';

const CONFLICT = 409;
const TOO_MANY_REQUESTS = 429;

/** Files that become a commit of a model's repository. */
export interface Publication {
  /** `organization/name`. */
  readonly id: string;
  readonly files: readonly { readonly name: string; readonly content: Blob }[];
  /** Title of the commit. */
  readonly title: string;
  /** Makes a new repository private; as the organization has it when absent. One that exists stays as it is. */
  readonly private?: boolean;
}

export interface Published {
  readonly url: string;
  readonly commit: string;
}

/**
 * Makes the repository where there is none, and adds one commit with the files to its main branch.
 * @throws HubError without a token, or where the hub refuses
 */
export async function publishModel(
  publication: Publication,
  options: HubClientOptions & { readonly settings: HubSettings },
): Promise<Published> {
  const { settings } = options;
  const { id, files, title } = publication;
  if (settings.offline) throw new HubError('HF_HUB_OFFLINE is set, and a push needs the hub: unset it');
  if (settings.token === undefined) {
    throw new HubError('a push needs a token that may write: set HF_TOKEN, or run `hf auth login`');
  }
  const client = new HubClient(settings, options);
  try {
    await createRepository(client, publication);
    const { commit } = (await uploadFiles({
      repo: { type: 'model', name: id },
      files: files.map(({ name, content }) => ({ path: name, content })),
      commitTitle: title,
      hubUrl: settings.endpoint,
      fetch: authorizedFetch(client, id),
      abortSignal: options.signal,
      useXet: false,
    }))!;
    return { url: `${settings.endpoint}/${id}`, commit: commit.oid };
  } finally {
    await client.close();
  }
}

async function createRepository(client: HubClient, { id, private: hidden }: Publication): Promise<void> {
  const [organization, name] = id.split('/');
  const body = JSON.stringify({ type: 'model', name, organization, private: hidden });
  await client.retried(id, async () => {
    const headers = { 'content-type': 'application/json' };
    const answer = await client.send('api/repos/create', { method: 'POST', headers, body });
    const text = await answer.body.text();
    if (answer.status >= 300 && answer.status !== CONFLICT) throw client.refused(answer, id, text);
  });
}

/** The library's `fetch`: the token goes to the hub alone, and passing failures are tried again. */
function authorizedFetch(client: HubClient, id: string): typeof globalThis.fetch {
  const { endpoint, token } = client.settings;
  const dispatcher = new EnvHttpProxyAgent();
  const send = async (input: unknown, init: Record<string, unknown> = {}) => {
    const url = new URL(String(input));
    if (!mayRedirect(endpoint, url))
      throw new HubError(`${endpoint} wants files sent to ${url.origin}: refused`);
    const headers = new Headers(init.headers as HeadersInit | undefined);
    if (url.origin === new URL(endpoint).origin) headers.set('authorization', `Bearer ${token}`);
    else headers.delete('authorization');
    return client.retried(id, async () => {
      const answer = await fetch(url, {
        ...init,
        headers: Object.fromEntries(headers),
        dispatcher,
        redirect: 'error',
      } as Parameters<typeof fetch>[1]).catch(error => {
        client.signal?.throwIfAborted();
        throw new PassingError(`${url.origin}: ${String((error as Error).cause ?? error)}`, { cause: error });
      });
      if (answer.status === TOO_MANY_REQUESTS || answer.status >= 500) {
        throw new PassingError(`${url.origin} answers ${answer.status}`, { status: answer.status });
      }
      if (answer.status === 401 || answer.status === 403) {
        throw client.refused({ status: answer.status, headers: {} }, id, await answer.text());
      }
      return answer;
    });
  };
  return send as unknown as typeof globalThis.fetch;
}
