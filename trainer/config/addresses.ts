import { hasCredentials } from '../../shared/http/url-credentials.ts';
import type { Rules } from './sections/schema.ts';
import type { RunSettings } from './settings.ts';

/** Addresses with a user name or password: no request sends them, while run pages and copies of the config show them. */
export function addressClashes({
  servers,
  generation,
  policy,
  rollout,
  tracking,
  endpoint,
}: RunSettings): Rules {
  const addresses: readonly (readonly [key: string, url: string | null | undefined, instead: string])[] = [
    ...servers.map(
      ({ url }, i) => [`servers.${i}.url`, url, `the variable RAGEN_TOKEN or servers.${i}.token`] as const,
    ),
    ...generation.urls.map((url, i) => [`generation.urls.${i}`, url, 'generation.token_env'] as const),
    ['policy.tinker.url', policy.tinker?.url, 'policy.tinker.token_env'],
    [
      'policy.reference_endpoint.url',
      policy.reference_endpoint?.url,
      'policy.reference_endpoint.api_key_env',
    ],
    ['rollout.reward.url', rollout.reward?.url, 'rollout.reward.token_env'],
    ['tracking.mlflow.url', tracking.mlflow?.url, 'tracking.mlflow.token_env'],
    ['endpoint.url', endpoint?.url, 'endpoint.api_key_env'],
  ];
  return Object.fromEntries(
    addresses
      .filter(([, url]) => hasCredentials(url ?? ''))
      .map(([key, , instead]) => [
        key,
        `has a user name or password, which is not sent: leave it out, and give a token by ${instead}`,
      ]),
  );
}
