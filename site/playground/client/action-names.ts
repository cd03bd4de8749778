import type { Meanings } from '../../components/ends.ts';
import { type Client, environmentPath } from './client.ts';
import type { Environment } from './wire.ts';

type NamedActions = Pick<Environment, 'actions' | 'action_space'>;
type Named = NamedActions & Pick<Environment, 'ends'>;

/** An action for reading: the name of one that was sent as a number, where the environment has one. */
export function namedAction<T>({ actions, action_space }: NamedActions, action: T): T | string {
  const { start = 0 } = action_space.gymnasium as { readonly start?: number };
  return (typeof action === 'number' ? actions?.[action - start] : undefined) ?? action;
}

/** Names of actions and ends, asked for once for each environment in which somebody sends numbers or an episode ends. */
export class EnvironmentNames {
  readonly #client: Client;
  readonly #onload: () => void;
  readonly #environments = new Map<string, Named | undefined>();

  /** @param onload names have come, and actions can be shown again */
  constructor(client: Client, onload: () => void) {
    this.#client = client;
    this.#onload = onload;
  }

  /** The action by its name where it is known already, else as it was sent. */
  nameOf(envId: string, action: unknown): unknown {
    if (typeof action !== 'number') return action;
    const environment = this.#namesOf(envId);
    return environment ? namedAction(environment, action) : action;
  }

  /** Meanings of the ends of an environment's episodes; none while they are on their way. */
  endsOf(envId: string): Meanings | undefined {
    return this.#namesOf(envId)?.ends;
  }

  #namesOf(envId: string): Named | undefined {
    if (!this.#environments.has(envId)) void this.#load(envId);
    return this.#environments.get(envId);
  }

  async #load(envId: string): Promise<void> {
    this.#environments.set(envId, undefined);
    try {
      const path = environmentPath(envId);
      this.#environments.set(envId, await this.#client.json<Environment>('GET', path, { quiet: true }));
      this.#onload();
    } catch {
      // The number stays: the environment may have been removed since.
    }
  }
}
