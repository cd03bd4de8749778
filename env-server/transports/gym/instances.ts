import type { JsonObject } from '../../../shared/json.ts';
import { chain, type MaybePromise } from '../../environments/core/maybe-promise.ts';
import type { SessionDetail } from '../../operations/schemas/session.ts';
import type { Variant } from '../../sessions/episodes/variant.ts';
import type { Principal } from '../../sessions/principal.ts';
import type { Dispatcher } from '../../stages/stages.ts';
import type { WrapperChoice } from '../../wrappers/wrap.ts';

/** Instances that are remembered; beyond, those asked about longest ago are looked up again. */
const MAX_REMEMBERED = 10_000;

/** Environments that instances play: each with its configuration and wrappers, which never change. */
export class Instances {
  readonly #dispatcher: Dispatcher;
  readonly #variants = new Map<string, Variant>();

  constructor(dispatcher: Dispatcher) {
    this.#dispatcher = dispatcher;
  }

  /**
   * The variant of an instance. Whether the client may play it is the next operation's business.
   * @throws Problem where there is none
   */
  variantOf(principal: Principal, id: string): MaybePromise<Variant> {
    const known = this.#variants.get(id);
    if (known) return known;
    const found = this.#dispatcher.operate<SessionDetail>(principal, 'get', { session_id: id });
    return chain(found, ({ env_id, config, wrappers }) => {
      const { catalog } = this.#dispatcher.services;
      const variant = catalog.variant(env_id, config as JsonObject, wrappers as WrapperChoice[]);
      this.#variants.set(id, variant);
      if (this.#variants.size > MAX_REMEMBERED) {
        const [oldest] = this.#variants.keys();
        this.#variants.delete(oldest);
      }
      return variant;
    });
  }

  /** Forgets an instance that was closed. */
  forget(id: string): void {
    this.#variants.delete(id);
  }
}
