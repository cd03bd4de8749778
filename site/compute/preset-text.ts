/** The configuration of an environment for a title: its preset, or the changed keys; empty for the default. */
export function presetText(config: { readonly [key: string]: unknown }): string {
  if (typeof config.preset === 'string' && Object.keys(config).length === 1) return config.preset;
  return Object.entries(config)
    .map(([key, value]) => `${key} ${typeof value === 'string' ? value : JSON.stringify(value)}`)
    .join(', ');
}
