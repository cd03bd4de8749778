import type { JsonObject } from '../../shared/json.ts';
import { ModelConfigError } from './config.ts';

/** @throws ModelConfigError when the field, or its fallback, is not a finite number */
export function number(json: JsonObject, key: string, fallback?: number): number {
  const value = json[key] ?? fallback;
  if (typeof value !== 'number' || !Number.isFinite(value)) {
    throw new ModelConfigError(`${key} must be a number, got ${show(value)}`);
  }
  return value;
}

/** @throws ModelConfigError when the field exists and is not a finite number */
export function optionalNumber(json: JsonObject, key: string): number | null {
  return json[key] == null ? null : number(json, key);
}

/** @throws ModelConfigError when the field, or its fallback, is not an integer of at least 1 */
export function positiveInteger(json: JsonObject, key: string, fallback?: number): number {
  const value = number(json, key, fallback);
  if (!Number.isInteger(value) || value < 1) {
    throw new ModelConfigError(`${key} must be an integer of at least 1, got ${value}`);
  }
  return value;
}

/** @throws ModelConfigError when the field is not a list of numbers, or is missing and required */
export function numbers(json: JsonObject, key: string, fallback?: readonly number[]): readonly number[] {
  const value = json[key] ?? fallback;
  if (!Array.isArray(value) || value.some(entry => typeof entry !== 'number' || !Number.isFinite(entry))) {
    throw new ModelConfigError(`${key} must be a list of numbers, got ${show(value)}`);
  }
  return value;
}

/** A value for an error message. */
export function show(value: unknown): string {
  return JSON.stringify(value) ?? 'missing';
}
