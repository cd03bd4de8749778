import type { Session } from '../session.ts';
import type { VariantCatalog } from '../variant-catalog.ts';

/** Why a session cannot be kept beyond its process; undefined where it can. */
export function lostReason({ variant }: Session, catalog: VariantCatalog): string | undefined {
  const { id } = variant.base.spec;
  if (!variant.copyable) {
    return `${id} holds more than its state, which could not be kept over a restart of the server`;
  }
  return catalog.offers(variant.base) ? undefined : replacedReason(id);
}

export function replacedReason(envId: string): string {
  return `${envId} was replaced while the session was open, and the definition it played is gone`;
}
