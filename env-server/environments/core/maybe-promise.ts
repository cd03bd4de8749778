/** A value now or later: a ready value is not made to wait. */
export type MaybePromise<T> = T | Promise<T>;

/** Continues with a value, at once where it is ready. */
export function chain<T, U>(value: MaybePromise<T>, next: (value: T) => U | Promise<U>): MaybePromise<U> {
  return value instanceof Promise ? value.then(next) : next(value);
}
