const NUMBER_BYTES = 12;
const STRING_BYTES = 24;
const ARRAY_BYTES = 32;
const OBJECT_BYTES = 48;
/** Bytes of a reference to an element or a property. */
const SLOT_BYTES = 8;
const OTHER_BYTES = 16;
/** From this length on it pays to check which characters a string has. */
const SHORT_STRING = 128;

/**
 * Estimates the memory of plain data, in bytes; shared parts count each time. It handles data of any depth, and stops
 * early.
 * @param most where to stop: a result of at least this is a lower bound
 */
export function sizeOf(value: unknown, most = Number.POSITIVE_INFINITY): number {
  if (typeof value !== 'object' || value === null) return leafSize(value);
  // Most data holds few objects, so the stack is made only when there are any.
  let stack: object[] | undefined;
  let bytes = 0;
  for (let item: object | undefined = value; item !== undefined && bytes < most; item = stack?.pop()) {
    if (Array.isArray(item)) {
      bytes += ARRAY_BYTES + SLOT_BYTES * item.length;
      for (const element of item) {
        if (typeof element === 'number') continue;
        if (typeof element === 'object' && element !== null) {
          stack ??= [];
          stack.push(element);
        } else bytes += leafSize(element);
      }
    } else if (ArrayBuffer.isView(item)) {
      bytes += OBJECT_BYTES + item.byteLength;
    } else {
      bytes += OBJECT_BYTES;
      for (const key in item) {
        const member = (item as { readonly [key: string]: unknown })[key];
        bytes += SLOT_BYTES + key.length;
        if (typeof member === 'object' && member !== null) {
          stack ??= [];
          stack.push(member);
        } else bytes += leafSize(member);
      }
    }
  }
  return bytes;
}

function leafSize(value: unknown): number {
  switch (typeof value) {
    case 'string':
      return (
        STRING_BYTES + (value.length < SHORT_STRING ? 2 * value.length : Buffer.byteLength(value, 'utf8'))
      );
    case 'number':
      return NUMBER_BYTES;
    case 'boolean':
    case 'undefined':
    case 'object':
      return 0;
    default:
      return OTHER_BYTES;
  }
}
