import type { Json } from '../../../shared/json.ts';
import type { KeyedStepBody, KeyFields } from '../../persistence/journal/records.ts';
import { ENVELOPE, fingerprint } from '../replies/reply-cache.ts';

/** The input of an operation under a request key. */
export interface KeyedInput {
  readonly key: string;
  readonly input: object;
}

/** A step as its record holds it. What was asked mostly follows from the action, and is not written then. */
export function recordedStep(action: Json, { key, input }: KeyedInput): KeyedStepBody {
  return asksActionOnly(input) ? { action, key } : { action, key, asked: fingerprint(input) };
}

function asksActionOnly(input: object): boolean {
  for (const key in input) if (key !== 'action' && key !== 'session_id' && !ENVELOPE.has(key)) return false;
  return true;
}

/** Key and fingerprint of the step of a record. */
export function keyOfRecordedStep(
  session_id: string,
  { action, key, asked = fingerprint({ action, session_id }) }: KeyedStepBody,
): Required<KeyFields> {
  return { key, asked };
}
