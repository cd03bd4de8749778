import type { Json, JsonObject } from '../../../shared/json.ts';
import type { AnyEnvironment, Environment } from '../../environments/core/environment.ts';
import { newId } from '../../sessions/ids.ts';
import { type AnsweredObservation, readOutcome, readSeen, refused } from '../answer.ts';
import { compileBehavior, listingValidActions } from '../definitions/behavior.ts';
import type { WebhookDefinition } from '../definitions/definition.ts';
import { Endpoint } from './endpoint.ts';
import type { OwnedNetwork } from './network.ts';
import { seedOf } from './service.ts';

interface State extends AnsweredObservation {
  /** The server's session id, where the service keeps the state. */
  readonly session?: string;
  /** The service's state, where the service is stateless. */
  readonly remote?: Json;
  readonly step: number;
  readonly success: boolean;
}

/**
 * A service that answers `POST {url}/reset`, `/step` and `/close`; docs/how-to/remote-environments.md describes the
 * messages. Without the capability `snapshot` the service keeps the state under our session id. With it each request
 * carries the state and each step its own seed, so every request may be repeated.
 * @throws Problem `invalid_request`
 */
export function webhookEnvironment(
  envId: string,
  definition: WebhookDefinition,
  network: OwnedNetwork,
): AnyEnvironment {
  const { spec, describe, accept, references } = compileBehavior(envId, definition);
  const endpoint = new Endpoint(envId, definition, network);
  const {
    seed: seedable = true,
    snapshot = false,
    valid_actions: listsValid = false,
  } = definition.capabilities ?? {};

  function stateOf(answer: JsonObject, before: Pick<State, 'session' | 'step' | 'success'>): State {
    const seen = readSeen(answer.observation, answer.valid_actions);
    if (!snapshot) return { ...before, ...seen };
    if (answer.state === undefined) {
      throw endpoint.failed('declares the capability snapshot, so every reply must have "state"');
    }
    return { ...before, ...seen, remote: answer.state };
  }

  const environment: Environment<JsonObject, State> = {
    spec: { ...spec, ...(!seedable && { seedable: false }) },
    describe,

    async reset(config, rng, options) {
      const session = snapshot ? undefined : newId('r');
      const seed = seedable ? { seed: seedOf(rng) } : {};
      const request = { ...(session && { session_id: session }), env_id: envId, ...seed, config, options };
      const answer = await endpoint.askObject('POST', 'reset', request, { repeatable: snapshot });
      const before = { ...(session && { session }), step: 0, success: false };
      return endpoint.reading(() => stateOf(answer, before));
    },

    step(state, action, rng) {
      const accepted = accept(action);
      if (accepted === undefined) return refused(state);
      const step = state.step + 1;
      const held = snapshot
        ? { state: state.remote as Json, ...(seedable && { seed: rng.uint32() }) }
        : { session_id: state.session as string };
      return endpoint
        .askObject('POST', 'step', { ...held, step, action: accepted }, { repeatable: snapshot })
        .then(answer =>
          endpoint.reading(() => {
            const next = stateOf(answer, {
              ...(state.session && { session: state.session }),
              step,
              success: false,
            });
            const outcome = readOutcome(answer, next.text !== state.text);
            return { ...outcome, state: { ...next, success: outcome.info.success } };
          }),
        );
    },

    observe: ({ text, structured }, format) => (format === 'structured' ? (structured ?? { text }) : text),
    ...(listsValid ? listingValidActions<State>(references) : references && { references }),
    ...(!snapshot && {
      async dispose({ session }) {
        await endpoint.ask('POST', 'close', { session_id: session as string });
      },
    }),
  };
  return environment as unknown as AnyEnvironment;
}
