/** A value now or later: what is ready at once is not made to wait. */
export type MaybePromise<T> = T | Promise<T>;
