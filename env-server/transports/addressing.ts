import type { FastifyRequest } from 'fastify';
import type { JsonObject } from '../../shared/json.ts';
import { chain, type MaybePromise } from '../environments/core/maybe-promise.ts';
import type { SessionDetail } from '../operations/schemas/session.ts';
import { Problem } from '../problems.ts';
import type { Variant } from '../sessions/episodes/variant.ts';
import type { Principal } from '../sessions/principal.ts';
import type { Dispatcher } from '../stages/dispatcher.ts';
import type { WrapperChoice } from '../wrappers/wrap.ts';

// Maps names of environments and sessions in other protocols.

const ITEMS_PER_PAGE = 1000;

/** Paths with an environment id, as one part with `%2F` in it or as two parts. */
export const ENVIRONMENT_PATHS = ['/:name', '/:namespace/:name'];

/** The environment id in one of these paths. */
export function envIdOf({ params }: FastifyRequest): string {
  const { namespace, name } = params as { namespace?: string; name: string };
  return namespace === undefined ? name : `${namespace}/${name}`;
}

/** A session with its environment, which never changes. */
export interface AddressedSession {
  readonly id: string;
  readonly envId: string;
  readonly variant: Variant;
}

/**
 * Finds a session opened over any transport.
 * @param envId environment that it must play
 * @throws Problem `unknown_session`, also for a session of another environment
 */
export function findSession(
  dispatcher: Dispatcher,
  principal: Principal,
  id: string,
  envId?: string,
): MaybePromise<AddressedSession> {
  const found = dispatcher.operate<SessionDetail>(principal, 'get', { session_id: id });
  return chain(found, ({ env_id: played, config, wrappers }) => {
    if (envId !== undefined && played !== envId)
      throw new Problem('unknown_session', `session ${id} plays ${played}, not ${envId}`);
    const { catalog } = dispatcher.services;
    const variant = catalog.variant(played, config as JsonObject, wrappers as WrapperChoice[]);
    return { id, envId: played, variant };
  });
}

/** Pages of a list, from the first to the last. */
export async function* pagesOf<P extends { readonly next_cursor: string | null }>(
  dispatcher: Dispatcher,
  principal: Principal,
  op: 'list' | 'list_environments',
): AsyncGenerator<P> {
  let cursor: string | null = null;
  do {
    const page: P = await dispatcher.operate(principal, op, {
      limit: ITEMS_PER_PAGE,
      ...(cursor !== null && { cursor }),
    });
    yield page;
    cursor = page.next_cursor;
  } while (cursor !== null);
}
