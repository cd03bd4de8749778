import Type from 'typebox';

/** An object that rejects unknown keys. */
export const closed = <Keys extends Type.TProperties>(keys: Keys, options: Type.TObjectOptions = {}) =>
  Type.Object(keys, { additionalProperties: false, ...options });
