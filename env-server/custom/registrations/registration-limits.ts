import { Problem } from '../../problems.ts';

/** Default share of all custom environments that one token may own, as for the bytes of sessions. */
const CLIENT_SHARE = 3 / 4;
/** Seconds after which a retry may find a free place. */
const RETRY_AFTER_SECONDS = 60;

export interface RegistrationLimits {
  readonly maxCustomEnvironments: number;
  /** Limit of one token; 0 sets it to a share of all. */
  readonly maxCustomEnvironmentsPerClient: number;
  /** Empty where everybody is the same client, who then may have all. */
  readonly tokens: string;
}

/**
 * Refuses one environment more.
 * @param owners of the environments there are, one for each
 * @param owner of the new environment
 * @throws Problem `too_many_environments`
 */
export function requirePlace(limits: RegistrationLimits, owners: readonly string[], owner: string): void {
  const { maxCustomEnvironments } = limits;
  if (owners.length >= maxCustomEnvironments) {
    throw tooMany(`the server holds ${maxCustomEnvironments} custom environments, the most it may have`);
  }
  const ofClient = mostOfClient(limits);
  if (owners.filter(name => name === owner).length >= ofClient) {
    throw tooMany(`you have ${ofClient} custom environments, the most that one token may have`);
  }
}

function mostOfClient({
  maxCustomEnvironments,
  maxCustomEnvironmentsPerClient,
  tokens,
}: RegistrationLimits): number {
  if (maxCustomEnvironmentsPerClient > 0) return maxCustomEnvironmentsPerClient;
  if (tokens === '') return maxCustomEnvironments;
  return Math.max(1, Math.floor(maxCustomEnvironments * CLIENT_SHARE));
}

function tooMany(detail: string): Problem {
  return new Problem('too_many_environments', detail, { retryAfterSeconds: RETRY_AFTER_SECONDS });
}
