const SIGNIFICANT = 6;

/** A number for reading: six digits that matter, a real minus sign. */
export function formatNumber(value: number): string {
  return String(Number(value.toPrecision(SIGNIFICANT))).replace('-', '−');
}

/** An action or observation for reading: text as it is, everything else as JSON. */
export function formatValue(value: unknown, indent?: number): string {
  return typeof value === 'string' ? value : JSON.stringify(value, null, indent);
}

/** Status of an episode. */
export interface EpisodeStatus {
  readonly text: string;
  readonly tone: 'plain' | 'good' | 'bad' | 'warn';
}

/** In a word, how the last step left an episode. */
export function episodeStatus(last: {
  readonly terminated?: boolean;
  readonly truncated?: boolean;
  readonly info: { readonly success?: boolean };
}): EpisodeStatus {
  if (last.terminated)
    return last.info.success ? { text: 'solved', tone: 'good' } : { text: 'ended', tone: 'bad' };
  if (last.truncated) return { text: 'cut short', tone: 'warn' };
  return { text: 'in progress', tone: 'plain' };
}

/** Remark on an action that was invalid or had no effect; empty for others. */
export function actionRemark(info: {
  readonly action_is_valid?: boolean;
  readonly action_is_effective?: boolean;
}): string {
  if (info.action_is_valid === false) return 'not valid';
  return info.action_is_effective === false ? 'no effect' : '';
}
