import { type Client, environmentPath } from './client.ts';
import type { Environment } from './wire.ts';

type NamedActions = Pick<Environment, 'actions' | 'action_space'>;

/** An action for reading: the name of one that was sent as a number, where the environment has one. */
export function namedAction<T>({ actions, action_space }: NamedActions, action: T): T | string {
  const { start = 0 } = action_space.gymnasium as { readonly start?: number };
  return (typeof action === 'number' ? actions?.[action - start] : undefined) ?? action;
}

/** Names of actions, asked for once for each environment in which somebody sends numbers. */
export class ActionNames {
  readonly #client: Client;
  readonly #onload: () => void;
  readonly #environments = new Map<string, NamedActions | undefined>();

  /** @param onload names have come, and actions can be shown again */
  constructor(client: Client, onload: () => void) {
    this.#client = client;
    this.#onload = onload;
  }

  /** The action by its name where it is known already, else as it was sent. */
  nameOf(envId: string, action: unknown): unknown {
    if (typeof action !== 'number') return action;
    if (!this.#environments.has(envId)) void this.#load(envId);
    const environment = this.#environments.get(envId);
    return environment ? namedAction(environment, action) : action;
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
