/** Functions that expected results of several tasks are made with. */

export const sum = (list: readonly number[]): number => list.reduce((a, b) => a + b, 0);

/** 0 to n - 1. */
export const range = (n: number): number[] => Array.from({ length: n }, (_, i) => i);
